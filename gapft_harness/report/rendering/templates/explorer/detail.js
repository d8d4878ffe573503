// One problem: prompt, gold answer, every model's response beside the source's, the samples.

/** Characters of a text that are shown at once. */
const SHOWN = 20000;
/** Prompts of more characters are folded, as in the report. */
const FOLDED = 1200;
/** Places of a text that is searched for which are marked. */
const MOST_MARKED = 2000;

class Detail {
  /** @param chosen called with what a person chose: {step: ±1} or {close: true}. */
  constructor(root, index, texts, chosen) {
    Object.assign(this, { root, index, texts, chosen, seed: "", against: "", openSamples: false });
  }

  /** Shows a problem, ``at`` of ``count`` in the list. */
  async show(place, view, at, count) {
    this.wanted = place;
    const texts = await this.texts.of(place);
    if (this.wanted !== place) return;
    this.seeds = view.seed === "any" || view.seed === "every" ? this.index.seeds : [view.seed];
    if (!this.seeds.includes(this.seed)) this.seed = this.seeds[0];
    const isNew = this.place !== place;
    this.place = place;
    const below = element("div", { class: "answers" });
    this.root.replaceChildren(
      this.#head(place, at, count),
      this.#facts(place),
      folded("Prompt", texts.prompt),
      element("p", { class: "gold" }, "Gold: ", element("code", {}, texts.gold)),
      this.#seedChoice(() => this.#answers(below, place, texts)),
      below,
      this.#samples(place, texts),
    );
    this.query = view.query;
    this.#answers(below, place, texts);
    if (isNew) this.root.scrollTop = 0;
  }

  /** Marks what a search found, in every text of the problem. */
  #highlight() {
    if (!CSS.highlights) return;
    CSS.highlights.delete("found");
    if (!this.query.trim()) return;
    const pattern = patternOf(this.query, "gi");
    const ranges = [];
    const walk = document.createTreeWalker(this.root, NodeFilter.SHOW_TEXT);
    while (walk.nextNode() && ranges.length < MOST_MARKED) {
      const node = walk.currentNode;
      if (!node.parentElement.closest("pre, code")) continue;
      for (const { index, 0: { length } } of node.data.matchAll(pattern)) {
        ranges.push(new StaticRange({ startContainer: node, startOffset: index, endContainer: node, endOffset: index + length }));
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  }

  clear() {
    this.wanted = this.place = null;
    this.root.replaceChildren();
  }

  #head(place, at, count) {
    const step = (by, text, label) => element(
      "button",
      { type: "button", "aria-label": label, title: label, disabled: at + by < 0 || at + by >= count,
        onclick: () => this.chosen({ step: by }) },
      text,
    );
    const where = at < 0 ? "not in the list" : `${whole(at + 1)} of ${whole(count)}`;
    return element(
      "div",
      { class: "detail-head" },
      element("h2", { tabindex: "-1" }, element("bdi", {}, this.index.ids[place])),
      element("span", { class: "where" }, where),
      step(-1, "↑", `${this.index.noun} before (k)`),
      step(1, "↓", `next ${this.index.noun} (j)`),
      element("button", { type: "button", class: "close", title: "close (Esc)",
        onclick: () => this.chosen({ close: true }) }, "Close"),
    );
  }

  #facts(place) {
    const { index } = this;
    const facts = [];
    const words = { G: "solved in one decode", S: "recovered by search", U: "missed by search" };
    if (index.states) facts.push(["state", `${index.states[place]}, ${words[index.states[place]]}`]);
    if (index.k) facts.push(["samples that pass", `${index.passing[place]} of ${index.k}`]);
    for (const [name, { values, codes }] of Object.entries(index.fields)) {
      facts.push([name, values[codes[place]] || "–"]);
    }
    const shown = facts.map(([name, value]) => element(
      "div", {}, element("dt", {}, name), element("dd", {}, element("bdi", {}, value)),
    ));
    return element("dl", { class: "facts" }, shown);
  }

  #seedChoice(changed) {
    if (this.seeds.length < 2) return "";
    const choices = this.seeds.map((seed) => element(
      "label", {},
      element("input", { type: "radio", name: "seed", value: seed, checked: seed === this.seed,
        onchange: () => { this.seed = seed; changed(); } }),
      element("span", {}, seed),
    ));
    return element("fieldset", { class: "toggles" }, element("legend", {}, "Responses of seed"), choices);
  }

  /** The response before, and each condition's with its differences from that one. */
  #answers(root, place, texts) {
    const { index } = this;
    const shown = index.conditions
      .map((condition) => [condition, condition.models.find((model) => model.seed === this.seed)])
      .filter(([, model]) => model);
    if (!shown.some(([condition]) => condition.name === this.against)) {
      this.against = shown.length ? shown[0][0].name : "";
    }
    const sides = shown.map(([, model]) => differences(texts.before, texts.models[model.place]));
    const at = shown.findIndex(([condition]) => condition.name === this.against);
    const verdict = index.verdicts[index.source[place]];
    const choice = shown.length < 2 ? null : element(
      "label", { class: "against" }, "marked against ",
      element("select", { onchange: (event) => { this.against = event.target.value; this.#answers(root, place, texts); } },
        shown.map(([{ name, label }]) => element("option", { value: name, selected: name === this.against }, label))),
    );
    root.replaceChildren(
      card(this.index.before, verdict, null, at < 0 ? plain(texts.before) : marked(sides[at][0], "del"), choice),
      ...shown.map(([condition, model], number) => card(
        condition.label,
        index.verdicts[model.verdicts[place]],
        model.outcomes[place],
        marked(sides[number][1], "ins"),
      )),
    );
    this.#highlight();
  }

  #samples(place, texts) {
    const { index } = this;
    if (!index.samples.length) return "";
    const verdicts = index.samples[place].map((code) => index.verdicts[code]);
    const each = verdicts.map((verdict, number) => {
      const name = `Sample ${number + 1}`;
      if (!texts.samples.length) return element("li", { class: `tone-${tone(verdict)}` }, `${name}: ${verdict}`);
      return element("li", {}, card(name, verdict, null, plain(texts.samples[number])));
    });
    const all = element(
      "details",
      { class: "samples", open: this.openSamples, ontoggle: () => { this.openSamples = all.open; } },
      element("summary", {}, `${whole(index.k)} samples of the source, of which ${index.passing[place]} pass`),
      element("ol", {}, each),
    );
    return all;
  }
}

/** A response under its name, its verdict and what became of the problem. */
function card(name, verdict, letter, text, more = null) {
  const outcome = letter && ["c", "r", "h", "l"].includes(letter) ? `, ${OUTCOMES[letter][0]}` : "";
  return element(
    "article",
    { class: `answer was-${tone(verdict)}` },
    element("h3", {}, element("bdi", {}, name), element("span", { class: `tone-${tone(verdict)}` },
      letter ? mark(letter) : null, ` ${verdict}${outcome}`)),
    more,
    text,
  );
}

function marked(parts, tag) {
  const nodes = parts.map(({ text, changed }) => (changed ? element(tag, {}, text) : text));
  const length = parts.reduce((sum, { text }) => sum + text.length, 0);
  return length > SHOWN ? plain(parts.map(({ text }) => text).join("")) : element("pre", {}, nodes);
}

/** A text; of a very long one the beginning, until the rest is asked for. */
function plain(text) {
  if (text.length <= SHOWN) return element("pre", {}, text);
  const shown = element("pre", {}, text.slice(0, SHOWN));
  const rest = element("button", { type: "button", onclick: () => { shown.textContent = text; rest.remove(); } },
    `Show all ${whole(text.length)} characters`);
  return element("div", {}, shown, rest);
}

function folded(name, text) {
  const shown = plain(text);
  shown.classList.add("prompt");
  if (text.length <= FOLDED) return element("div", {}, element("h3", {}, name), shown);
  const summary = `${name}, ${whole(text.length)} characters`;
  return element("details", {}, element("summary", {}, summary), shown);
}
