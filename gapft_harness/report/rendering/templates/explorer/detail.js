// One problem: prompt, gold answer, every model's response next to the source's, the samples.

/** Characters of a text that are shown at first. */
const SHOWN = 20000;
/** Longer prompts are folded, as in the report. */
const FOLDED = 1200;
/** Most hits of a search that are marked in a text. */
const MOST_MARKED = 2000;

class Detail {
  /** @param chosen called with the user's choice: {step: ±1} or {close: true}. */
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
    const isNew = this.place !== place || this.query !== view.query;
    Object.assign(this, { place, query: view.query, sought: view.query.trim() ? soughtBy(view.query) : null });
    if (isNew && this.sought && !this.sought.ids) await this.#turnTo(place);
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
    this.#answers(below, place, texts);
    if (isNew) this.root.scrollTop = 0;
    this.#reveal(isNew);
  }

  /** Chooses the seed of a response with a hit, if the chosen seed's texts have none. */
  async #turnTo(place) {
    const hit = await this.texts.hit(place, this.sought.pattern, this.seed);
    if (hit && this.seeds.includes(hit[2])) this.seed = hit[2];
  }

  /** Scrolls to the first hit; opens a folded text if only folded texts have hits. */
  #reveal(moves) {
    const closed = (node) => node.parentElement.closest("details:not([open])");
    let first = this.ranges.find(({ startContainer }) => !closed(startContainer));
    if (!first && this.ranges.length) {
      [first] = this.ranges;
      for (let at; (at = closed(first.startContainer));) at.open = true;
    }
    if (!first || !moves) return;
    const range = document.createRange();
    range.setStart(first.startContainer, first.startOffset);
    range.setEnd(first.endContainer, first.endOffset);
    const [place, sight] = [range.getBoundingClientRect(), this.root.getBoundingClientRect()];
    if (place.bottom > sight.bottom) this.root.scrollTop += place.top - sight.top - sight.height / 3;
  }

  /** Marks the hits in every text of the problem, and counts them in folded texts. */
  #highlight() {
    this.ranges = [];
    CSS.highlights?.delete("found");
    if (!this.sought) return;
    const pattern = new RegExp(this.sought.pattern, "gi");
    const within = this.sought.ids ? "h2" : "pre, code, .why";
    const { ranges } = this;
    const walk = document.createTreeWalker(this.root, NodeFilter.SHOW_TEXT);
    while (walk.nextNode() && ranges.length < MOST_MARKED) {
      const node = walk.currentNode;
      if (!node.parentElement.closest(within)) continue;
      for (const { index, 0: { length } } of node.data.matchAll(pattern)) {
        if (!length) break;
        ranges.push(new StaticRange({ startContainer: node, startOffset: index, endContainer: node, endOffset: index + length }));
      }
    }
    CSS.highlights?.set("found", new Highlight(...ranges));
    for (const details of this.root.querySelectorAll("details")) {
      details.querySelector(":scope > summary > mark")?.remove();
      const count = ranges.filter(({ startContainer }) => details.contains(startContainer)).length;
      if (count) details.firstChild.append(element("mark", {}, `${whole(count)} found`));
    }
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

  /** Shows the response before, and each condition's response with its differences from it. */
  #answers(root, place, texts) {
    const { index } = this;
    const shown = index.conditions
      .map((condition) => [condition, condition.models.find((model) => model.seed === this.seed)])
      .filter(([, model]) => model);
    if (!shown.some(([condition]) => condition.name === this.against)) {
      this.against = shown.length ? shown[0][0].name : "";
    }
    const sides = shown.map(([, model]) => differences(texts.before.text, texts.models[model.place].text));
    const at = shown.findIndex(([condition]) => condition.name === this.against);
    const verdict = index.verdicts[index.source[place]];
    const choice = shown.length < 2 ? null : element(
      "label", { class: "against" }, "marked against ",
      element("select", { onchange: (event) => { this.against = event.target.value; this.#answers(root, place, texts); } },
        shown.map(([{ name, label }]) => element("option", { value: name, selected: name === this.against }, label))),
    );
    root.replaceChildren(
      card(this.index.before, verdict, null, texts.before, at < 0 ? null : marked(sides[at][0], "del"), choice),
      ...shown.map(([condition, model], number) => card(
        condition.label,
        index.verdicts[model.verdicts[place]],
        model.outcomes[place],
        texts.models[model.place],
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
      return element("li", {}, card(name, verdict, null, texts.samples[number]));
    });
    const all = element(
      "details",
      { class: "samples", open: this.openSamples },
      element("summary", { onclick: () => { this.openSamples = !all.open; } }, `${whole(index.k)} samples of the source, of which ${index.passing[place]} pass`),
      element("ol", {}, each),
    );
    return all;
  }
}

/** Builds a response with its name, its verdict and the problem's outcome. */
function card(name, verdict, letter, response, text = null, more = null) {
  const outcome = letter && ["c", "r", "h", "l"].includes(letter) ? `, ${OUTCOMES[letter][0]}` : "";
  return element(
    "article",
    { class: `answer was-${tone(verdict)}` },
    element("h3", {}, element("bdi", {}, name), element("span", { class: `tone-${tone(verdict)}` },
      letter ? mark(letter) : null, ` ${verdict}${outcome}`)),
    ...judging(response),
    more,
    text ?? plain(response.text),
    earlier(response.attempts),
  );
}

/** Builds the reason of a verdict, and the answer that the verifier read. */
function judging({ reason, answer }) {
  return [
    reason ? element("p", { class: "why" }, reason) : null,
    answer ? element("p", { class: "why" }, "read: ", element("code", {}, answer)) : null,
  ];
}

/** Builds the earlier attempts, each with the feedback to the model. */
function earlier(attempts) {
  if (!attempts.length) return null;
  const each = attempts.map(({ text, told }, number) => element(
    "li", {},
    element("h4", {}, `Attempt ${number + 1}`), plain(text),
    element("h4", {}, "It was told"), plain(told),
  ));
  const summary = attempts.length > 1 ? `${attempts.length} earlier attempts` : "1 earlier attempt";
  return element("details", { class: "earlier" }, element("summary", {}, summary), element("ol", {}, each));
}

function marked(parts, tag) {
  const nodes = parts.map(({ text, changed }) => (changed ? element(tag, {}, text) : text));
  const length = parts.reduce((sum, { text }) => sum + text.length, 0);
  return length > SHOWN ? plain(parts.map(({ text }) => text).join("")) : element("pre", {}, nodes);
}

/** Builds a text; a very long text is cut until the user opens it. */
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
