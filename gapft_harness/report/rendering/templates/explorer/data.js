// The page's data: an index of all problems, and their texts in chunks, unpacked when needed.

/** What became of a problem: its word and its mark. */
const OUTCOMES = {
  c: ["corrected", "▲"],
  r: ["regressed", "▼"],
  k: ["kept", "●"],
  m: ["missed", "○"],
  h: ["higher", "▲"],
  l: ["lower", "▼"],
  e: ["equal", "●"],
};

/** Characters of unpacked texts that are kept. */
const MOST_KEPT = 100e6;

async function unpacked(element) {
  const packed = atob(element.textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

/** The index, with the models of each condition together. */
async function readIndex() {
  const index = JSON.parse(await unpacked(document.getElementById("index")));
  index.count = index.ids.length;
  index.places = new Map(index.ids.map((name, place) => [name, place]));
  index.conditions = [];
  for (const [place, model] of index.models.entries()) {
    let condition = index.conditions.find((one) => one.name === model.condition);
    if (!condition) {
      condition = { name: model.condition, label: model.label, models: [] };
      index.conditions.push(condition);
    }
    condition.models.push({ ...model, place });
  }
  index.seeds = [...new Set(index.models.map((model) => model.seed))];
  return index;
}

/** The texts of all problems; those used last stay unpacked. */
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
      const text = await unpacked(this.#elements[number]);
      records = text.split("\x1e");
      records.size = text.length;
    }
    if (!this.#kept.delete(number)) this.#size += records.size;
    this.#kept.set(number, records); // behind the others, as it is used last
    for (const [old, { size }] of this.#kept) {
      if (this.#size <= MOST_KEPT || old === number) break;
      this.#kept.delete(old);
      this.#size -= size;
    }
    return records;
  }

  /** Prompt, gold answer, the response before, those of the models, those of the samples. */
  async of(place) {
    const size = this.index.chunk;
    const records = await this.#chunk(Math.floor(place / size));
    const [numbers, ...texts] = records[place % size].split("\x1f");
    const [prompt, gold, before, ...rest] = numbers.split(",").map((number) => texts[number]);
    const models = rest.slice(0, this.index.models.length);
    return { prompt, gold, before, models, samples: rest.slice(models.length) };
  }

  /**
   * Which problems have a text that matches, as one byte each.
   *
   * @param within problems to look at, one byte each, or null for all.
   * @param progress called now and then with the bytes so far and the share that is done;
   *     the search ends where it returns false.
   */
  async search(pattern, within, progress) {
    const { chunk: size, count, ids } = this.index;
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
        hits[place] = pattern.test(texts) || pattern.test(ids[place]) ? 1 : 0;
      }
      if (performance.now() > pause) {
        if (!progress(hits, end / count)) return null;
        await new Promise((go) => setTimeout(go));
        pause = performance.now() + 30;
      }
    }
    return hits;
  }
}

/** What a person typed, as a pattern: small and capital letters are the same, so is all space. */
function patternOf(query, flags = "i") {
  const words = query.trim().split(/\s+/);
  const plain = words.map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  return new RegExp(plain.join("\\s+"), flags);
}
