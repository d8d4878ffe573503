// Finds the words that differ between two texts, by the rules of report/rendering/differences.py.

/** Maximum number of steps for a comparison of words, so that the page stays fast. */
const MAX_STEPS = 5e6;

/**
 * Splits two texts into pieces that both contain and pieces that only one contains.
 *
 * Compares words; if these are too many, lines; else only the common beginning and end. White
 * space is ignored.
 */
function findDifferences(before, after, maxSteps = MAX_STEPS) {
  let parts, start, end, a, b;
  let same = [];
  for (const unit of [/\S+\s*|\s+/g, /[^\n]*\n|[^\n]+/g]) {
    parts = [before, after].map((text) => text.match(unit) ?? []);
    [a, b] = parts.map((side) => side.map((part) => part.trim()));
    start = countShared(a, b);
    end = countShared([...a].reverse(), [...b].reverse());
    end = Math.min(end, a.length - start, b.length - start);
    [a, b] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
    if (estimateSteps(a, b) <= maxSteps) {
      same = matchingBlocks(a, b);
      break;
    }
  }
  return [a, b].map((words, side) => {
    const kept = new Array(words.length).fill(false);
    for (const block of same) kept.fill(true, block[side], block[side] + block[2]);
    const ends = [new Array(start).fill(true), new Array(end).fill(true)];
    return joinPieces(parts[side], [...ends[0], ...kept, ...ends[1]]);
  });
}

function countShared(a, b) {
  let length = 0;
  while (length < Math.min(a.length, b.length) && a[length] === b[length]) length++;
  return length;
}

function estimateSteps(a, b) {
  const counts = new Map();
  for (const word of a) counts.set(word, (counts.get(word) ?? 0) + 1);
  let pairs = 0;
  for (const word of b) pairs += counts.get(word) ?? 0;
  return Math.min(pairs, a.length, b.length) * (4 * a.length + pairs);
}

/** Finds the longest common block, then those before and after it: [in a, in b, length]. */
function matchingBlocks(a, b) {
  const places = new Map();
  b.forEach((word, j) => places.has(word) ? places.get(word).push(j) : places.set(word, [j]));
  const blocks = [];
  const left = [[0, a.length, 0, b.length]];
  while (left.length) {
    const [fromA, toA, fromB, toB] = left.pop();
    let best = [fromA, fromB, 0];
    let lengths = new Map();
    for (let i = fromA; i < toA; i++) {
      const next = new Map();
      for (const j of places.get(a[i]) ?? []) {
        if (j < fromB) continue;
        if (j >= toB) break;
        const length = (lengths.get(j - 1) ?? 0) + 1;
        next.set(j, length);
        if (length > best[2]) best = [i - length + 1, j - length + 1, length];
      }
      lengths = next;
    }
    const [i, j, length] = best;
    if (!length) continue;
    blocks.push(best);
    left.push([fromA, i, fromB, j], [i + length, toA, j + length, toB]);
  }
  return blocks;
}

/** Joins adjacent pieces of one kind; white space at the end of a difference is not marked. */
function joinPieces(parts, kept) {
  const joined = [];
  for (let from = 0, to; from < parts.length; from = to) {
    for (to = from + 1; to < parts.length && kept[to] === kept[from];) to++;
    const text = parts.slice(from, to).join("");
    const words = kept[from] ? text : text.trimEnd();
    joined.push({ text: words, changed: !kept[from] }, { text: text.slice(words.length), changed: false });
  }
  return joined.filter((piece) => piece.text);
}
