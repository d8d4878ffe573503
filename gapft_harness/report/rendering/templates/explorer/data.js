// The page's data: an index of all problems, and their texts in chunks, unpacked when needed.

/** Word and mark of each outcome of a problem. */
const OUTCOMES = {
  c: ["corrected", "▲"],
  r: ["regressed", "▼"],
  k: ["kept", "●"],
  m: ["missed", "○"],
  h: ["higher", "▲"],
  l: ["lower", "▼"],
  e: ["equal", "●"],
};

/** Maximum number of characters of unpacked texts in memory. */
const MAX_UNPACKED = 100e6;

async function unpack(element) {
  const packed = atob(element.textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

/** The index, with the models grouped by condition. */
async function readIndex() {
  const index = JSON.parse(await unpack(document.getElementById("index")));
  index.count = index.ids.length;
  index.places = new Map(index.ids.map((name, place) => [name, place]));
  index.conditions = [];
  for (const [place, model] of index.models.entries()) {
    let condition = index.conditions.find((entry) => entry.name === model.condition);
    if (!condition) {
      condition = { name: model.condition, label: model.label, models: [] };
      index.conditions.push(condition);
    }
    condition.models.push({ ...model, place, at: 1 + place });
  }
  index.seeds = [...new Set(index.models.map((model) => model.seed))];
  return index;
}

/** The texts of all problems; the most recently used stay unpacked. */
class Texts {
  #elements = [...document.querySelectorAll("script.chunk")];
  #kept = new Map();
  #size = 0;

  constructor(index) {
    this.index = index;
  }

  async #chunk(number) {
    let records = this.#kept.get(number);
    if (!records) {
      const text = await unpack(this.#elements[number]);
      records = text.split("\x1e");
      records.size = text.length;
    }
    if (!this.#kept.delete(number)) this.#size += records.size;
    this.#kept.set(number, records); // moves to the end, as the most recently used
    for (const [old, { size }] of this.#kept) {
      if (this.#size <= MAX_UNPACKED || old === number) break;
      this.#kept.delete(old);
      this.#size -= size;
    }
    return records;
  }

  /** Returns prompt, gold answer, the response before, and the responses of models and samples. */
  async read(place) {
    const size = this.index.chunk;
    const records = await this.#chunk(Math.floor(place / size));
    const [numbers, ...texts] = records[place % size].split("\x1f");
    const groups = numbers.split(",").map((group) => group.split(":").map((number) => texts[number]));
    const [[prompt], [gold], before, ...rest] = groups;
    const responses = [before, ...rest].map(parseResponse);
    const models = responses.slice(1, 1 + this.index.models.length);
    return { prompt, gold, before: responses[0], models, samples: responses.slice(1 + models.length) };
  }

  /** Finds the first hit of a search in a problem: [name of the text, the text, a model's seed]. */
  async findHit(place, pattern, seed) {
    const texts = await this.read(place);
    const hits = [...listTexts(texts, this.index)].filter(([, text]) => pattern.test(text));
    return hits.find(([, , modelSeed]) => !modelSeed || modelSeed === seed) ?? hits[0];
  }

  /**
   * Finds the problems with a matching text, as one byte each; searches ids if requested.
   *
   * @param within the problems to search, one byte each, or null for all.
   * @param progress called from time to time with the bytes so far and the finished share;
   *     the search ends where it returns false.
   */
  async search({ pattern, ids: inIds }, within, progress) {
    const { chunk: size, count, ids } = this.index;
    if (inIds) return Uint8Array.from(ids, (name) => pattern.test(name));
    const hits = new Uint8Array(count);
    let pause = performance.now() + 30;
    for (let number = 0; number < this.#elements.length; number++) {
      const start = number * size;
      const end = Math.min(count, start + size);
      if (within && !within.subarray(start, end).includes(1)) continue;
      const records = await this.#chunk(number);
      for (let place = start; place < end; place++) {
        if (within && !within[place]) continue;
        const record = records[place - start];
        const texts = record.slice(record.indexOf("\x1f"));
        hits[place] = pattern.test(texts) ? 1 : 0;
      }
      if (performance.now() > pause) {
        if (!progress(hits, end / count)) return null;
        await new Promise((resolve) => setTimeout(resolve));
        pause = performance.now() + 30;
      }
    }
    return hits;
  }
}

/** Splits a response into its text and its details. */
function parseResponse([text, reason = "", answer = "", reasoning = "", ...rest]) {
  const attempts = [];
  for (let i = 0; i < rest.length; i += 2) attempts.push({ text: rest[i], feedback: rest[i + 1] });
  return { text, reason, answer, reasoning, attempts };
}

/** Lists the texts of a problem in their order: the name, the text, a model's seed. */
function* listTexts(texts, index) {
  yield ["prompt", texts.prompt, ""];
  yield ["gold", texts.gold, ""];
  const seeds = index.seeds.length > 1;
  const models = index.models.map(({ label, seed }, at) =>
    [seeds ? `${label}, seed ${seed}` : label, texts.models[at], seed]);
  const samples = texts.samples.map((sample, at) => [`sample ${at + 1}`, sample, ""]);
  for (const [name, response, seed] of [[index.before, texts.before, ""], ...models, ...samples]) {
    const { text: own, reason, answer, reasoning } = response;
    for (const text of [own, reason, answer, reasoning]) yield [name, text, seed];
    for (const { text, feedback } of response.attempts) {
      yield* [[name, text, seed], [name, feedback, seed]];
    }
  }
}

/** Parses a search: a pattern for all texts, or after ``id:`` for the names of problems. */
function parseSearch(query) {
  const id = /^\s*id:(.*)$/is.exec(query);
  return { pattern: buildPattern(id ? id[1] : query), ids: Boolean(id) };
}

/** Builds nodes of a text with marked hits; ``lead``: characters shown before the first hit. */
function markHits(text, pattern, lead = Infinity) {
  const nodes = [];
  let from = 0;
  for (const { index, 0: hit } of text.matchAll(new RegExp(pattern, "gi"))) {
    if (!hit) break;
    if (!nodes.length && index > lead) {
      from = index - lead;
      nodes.push("…");
    }
    nodes.push(text.slice(from, index), element("mark", {}, hit));
    from = index + hit.length;
    if (nodes.length > 40) break;
  }
  return [...nodes, text.slice(from, from + 400)];
}

/** Builds a pattern from typed text: case and kind of white space are ignored. */
function buildPattern(query, flags = "i") {
  const words = query.trim().split(/\s+/);
  const plain = words.map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  return new RegExp(plain.join("\\s+"), flags);
}
