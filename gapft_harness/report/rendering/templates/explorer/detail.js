// One problem: prompt, gold answer, every model's response next to the source's, the samples.

/** Number of characters of a text that are shown at first. */
const SHOWN_CHARS = 20000;
/** Prompts with more characters are folded, as in the report. */
const FOLD_CHARS = 1200;
/** Maximum number of marked hits. */
const MAX_MARKED = 2000;

class Detail {
  /** @param onChoice called with the user's choice: {step: ±1} or {close: true}. */
  constructor(root, index, texts, onChoice) {
    Object.assign(this, { root, index, texts, onChoice, seed: "", against: "", openSamples: false });
  }

  /** Shows a problem, ``at`` of ``count`` in the list. */
  async show(place, view, at, count) {
    this.requested = place;
    const texts = await this.texts.read(place);
    if (this.requested !== place) return;
    this.seeds = view.seed === "any" || view.seed === "every" ? this.index.seeds : [view.seed];
    if (!this.seeds.includes(this.seed)) this.seed = this.seeds[0];
    const isNew = this.place !== place || this.query !== view.query;
    Object.assign(this, { place, query: view.query, search: view.query.trim() ? parseSearch(view.query) : null });
    if (isNew && this.search && !this.search.ids) await this.#chooseSeed(place);
    const below = element("div", { class: "answers" });
    this.root.replaceChildren(
      this.#head(place, at, count),
      this.#facts(place),
      buildFolded("Prompt", texts.prompt),
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
  async #chooseSeed(place) {
    const hit = await this.texts.findHit(place, this.search.pattern, this.seed);
    if (hit && this.seeds.includes(hit[2])) this.seed = hit[2];
  }

  /** Scrolls to the first hit; opens a folded text if only folded texts have hits. */
  #reveal(scroll) {
    const closed = (node) => node.parentElement.closest("details:not([open])");
    let first = this.ranges.find(({ startContainer }) => !closed(startContainer));
    if (!first && this.ranges.length) {
      [first] = this.ranges;
      for (let at; (at = closed(first.startContainer));) at.open = true;
    }
    if (!first || !scroll) return;
    const range = document.createRange();
    range.setStart(first.startContainer, first.startOffset);
    range.setEnd(first.endContainer, first.endOffset);
    const [target, bounds] = [range.getBoundingClientRect(), this.root.getBoundingClientRect()];
    if (target.bottom > bounds.bottom) this.root.scrollTop += target.top - bounds.top - bounds.height / 3;
  }

  /** Marks the hits in every text of the problem, and counts them in folded texts. */
  #highlight() {
    this.ranges = [];
    CSS.highlights?.delete("found");
    if (!this.search) return;
    const pattern = new RegExp(this.search.pattern, "gi");
    const within = this.search.ids ? "h2" : "pre, code, .why";
    const { ranges } = this;
    const walk = document.createTreeWalker(this.root, NodeFilter.SHOW_TEXT);
    while (walk.nextNode() && ranges.length < MAX_MARKED) {
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
      if (count) details.firstChild.append(element("mark", {}, `${formatNumber(count)} found`));
    }
  }

  clear() {
    this.requested = this.place = null;
    this.root.replaceChildren();
  }

  #head(place, at, count) {
    const step = (by, text, label) => element(
      "button",
      { type: "button", "aria-label": label, title: label, disabled: at + by < 0 || at + by >= count,
        onclick: () => this.onChoice({ step: by }) },
      text,
    );
    const where = at < 0 ? "not in the list" : `${formatNumber(at + 1)} of ${formatNumber(count)}`;
    return element(
      "div",
      { class: "detail-head" },
      element("h2", { tabindex: "-1" }, element("bdi", {}, this.index.ids[place])),
      element("span", { class: "where" }, where),
      step(-1, "↑", `${this.index.noun} before (k)`),
      step(1, "↓", `next ${this.index.noun} (j)`),
      element("button", { type: "button", class: "close", title: "close (Esc)",
        onclick: () => this.onChoice({ close: true }) }, "Close"),
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
    const sides = shown.map(([, model]) => findDifferences(texts.before.text, texts.models[model.place].text));
    const at = shown.findIndex(([condition]) => condition.name === this.against);
    const verdict = index.verdicts[index.source[place]];
    const choice = shown.length < 2 ? null : element(
      "label", { class: "against" }, "marked against ",
      element("select", { onchange: (event) => { this.against = event.target.value; this.#answers(root, place, texts); } },
        shown.map(([{ name, label }]) => element("option", { value: name, selected: name === this.against }, label))),
    );
    root.replaceChildren(
      buildCard(this.index.before, verdict, null, texts.before, at < 0 ? null : buildMarked(sides[at][0], "del"), choice),
      ...shown.map(([condition, model], number) => buildCard(
        condition.label,
        index.verdicts[model.verdicts[place]],
        model.outcomes[place],
        texts.models[model.place],
        buildMarked(sides[number][1], "ins"),
      )),
    );
    this.#highlight();
  }

  #samples(place, texts) {
    const { index } = this;
    if (!index.samples.length) return "";
    const verdicts = index.samples[place].map((code) => index.verdicts[code]);
    const items = verdicts.map((verdict, number) => {
      const name = `Sample ${number + 1}`;
      if (!texts.samples.length) return element("li", { class: `tone-${tone(verdict)}` }, `${name}: ${verdict}`);
      return element("li", {}, buildCard(name, verdict, null, texts.samples[number]));
    });
    const details = element(
      "details",
      { class: "samples", open: this.openSamples },
      element("summary", { onclick: () => { this.openSamples = !details.open; } }, `${formatNumber(index.k)} samples of the source, ${index.passing[place]} of which pass`),
      element("ol", {}, items),
    );
    return details;
  }
}

/** Builds a response with its name, its verdict and the problem's outcome. */
function buildCard(name, verdict, letter, response, text = null, more = null) {
  const outcome = letter && ["c", "r", "h", "l"].includes(letter) ? `, ${OUTCOMES[letter][0]}` : "";
  return element(
    "article",
    { class: `answer was-${tone(verdict)}` },
    element("h3", {}, element("bdi", {}, name), element("span", { class: `tone-${tone(verdict)}` },
      letter ? buildMark(letter) : null, ` ${verdict}${outcome}`)),
    ...buildJudging(response),
    more,
    buildReasoning(response.reasoning),
    text ?? buildText(response.text),
    buildAttempts(response.attempts),
  );
}

/** Builds the reason of a verdict, and the answer that the verifier read. */
function buildJudging({ reason, answer }) {
  return [
    reason ? element("p", { class: "why" }, reason) : null,
    answer ? element("p", { class: "why" }, "read: ", element("code", {}, answer)) : null,
  ];
}

/** Builds the reasoning that came apart from the text. */
function buildReasoning(reasoning) {
  if (!reasoning) return null;
  const summary = `Reasoning, ${formatNumber(reasoning.length)} characters`;
  return element("details", { class: "reasoning" }, element("summary", {}, summary), buildText(reasoning));
}

/** Builds the earlier attempts, each with the feedback to the model. */
function buildAttempts(attempts) {
  if (!attempts.length) return null;
  const items = attempts.map(({ text, feedback }, number) => element(
    "li", {},
    element("h4", {}, `Attempt ${number + 1}`), buildText(text),
    element("h4", {}, "Feedback"), buildText(feedback),
  ));
  const summary = attempts.length > 1 ? `${attempts.length} earlier attempts` : "1 earlier attempt";
  return element("details", { class: "earlier" }, element("summary", {}, summary), element("ol", {}, items));
}

function buildMarked(parts, tag) {
  const nodes = parts.map(({ text, changed }) => (changed ? element(tag, {}, text) : text));
  const length = parts.reduce((sum, { text }) => sum + text.length, 0);
  return length > SHOWN_CHARS ? buildText(parts.map(({ text }) => text).join("")) : element("pre", {}, nodes);
}

/** Builds a text; a very long text is cut until the user opens it. */
function buildText(text) {
  if (text.length <= SHOWN_CHARS) return element("pre", {}, text);
  const shown = element("pre", {}, text.slice(0, SHOWN_CHARS));
  const rest = element("button", { type: "button", onclick: () => { shown.textContent = text; rest.remove(); } },
    `Show all ${formatNumber(text.length)} characters`);
  return element("div", {}, shown, rest);
}

function buildFolded(name, text) {
  const shown = buildText(text);
  shown.classList.add("prompt");
  if (text.length <= FOLD_CHARS) return element("div", {}, element("h3", {}, name), shown);
  const summary = `${name}, ${formatNumber(text.length)} characters`;
  return element("details", {}, element("summary", {}, summary), shown);
}
