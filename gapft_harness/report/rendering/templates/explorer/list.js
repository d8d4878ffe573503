// The list: a grid with elements only for the visible rows.

/** Number of rows with elements above and below the visible ones. */
const EXTRA_ROWS = 10;

class List {
  #rows = new Map();
  #places = [];
  #body = element("div", { class: "rows", role: "rowgroup" });
  #head = element("div", { class: "head", role: "rowgroup" });

  /** @param onChoice called with the user's choice: {sort}, {current} or {problem}. */
  constructor(root, index, texts, onChoice) {
    Object.assign(this, { root, index, texts, onChoice });
    root.append(this.#head, this.#body);
    root.addEventListener("scroll", () => this.#draw(), { passive: true });
    new ResizeObserver(() => this.#layout()).observe(root);
  }

  /** Shows these problems, with ``current`` marked, or the nodes ``instead`` if the list is empty. */
  show(places, view, current, instead) {
    Object.assign(this, { view, current, instead });
    this.search = view.query.trim() ? parseSearch(view.query) : null;
    this.#places = places;
    this.root.setAttribute("aria-rowcount", places.length + 1);
    this.#head.replaceChildren(this.#headRow());
    this.#layout();
  }

  /** Marks a problem and scrolls to it. */
  move(current) {
    this.current = current;
    const at = this.#places.indexOf(current);
    if (at >= 0) {
      const { scrollTop, clientHeight } = this.root;
      const [top, head] = [at * this.height, this.#head.offsetHeight];
      if (top < scrollTop) this.root.scrollTop = top;
      const below = top + this.height + head - clientHeight;
      if (below > scrollTop) this.root.scrollTop = below;
    }
    this.#draw();
  }

  #layout() {
    const unit = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.height = Math.round(unit * parseFloat(getComputedStyle(this.root).getPropertyValue("--row")));
    this.#body.style.height = `${this.height * this.#places.length}px`;
    this.#body.replaceChildren();
    this.#rows.clear();
    if (!this.#places.length && this.instead) {
      const message = element("div", { role: "gridcell", class: "nothing" }, this.instead);
      this.#body.append(element("div", { role: "row" }, message));
    }
    this.#draw();
  }

  #draw() {
    if (!this.height) return;
    const from = Math.max(0, Math.floor(this.root.scrollTop / this.height) - EXTRA_ROWS);
    const to = Math.ceil((this.root.scrollTop + this.root.clientHeight) / this.height) + EXTRA_ROWS;
    for (const [at, row] of this.#rows) {
      if (at < from || at >= to) {
        row.remove();
        this.#rows.delete(at);
      }
    }
    for (let at = from; at < Math.min(to, this.#places.length); at++) {
      if (!this.#rows.has(at)) this.#rows.set(at, this.#row(at));
      const row = this.#rows.get(at);
      const isCurrent = this.#places[at] === this.current;
      row.setAttribute("aria-selected", isCurrent);
      if (!row.isConnected) this.#body.append(row);
    }
    const current = this.#places.indexOf(this.current);
    if (this.#rows.has(current)) this.root.setAttribute("aria-activedescendant", `row-${this.current}`);
    else this.root.removeAttribute("aria-activedescendant");
  }

  /** Returns the columns: key, name, and the content of a cell. */
  #columns() {
    const { index, view } = this;
    const cell = (attributes, ...children) => element("div", { role: "gridcell", ...attributes }, ...children);
    const columns = [
      ["id", index.noun, (place) => cell(
        { class: "problem" },
        element("bdi", { class: "name" }, this.search?.ids ? markHits(index.ids[place], this.search.pattern) : index.ids[place]),
        this.#words(place),
      )],
    ];
    if (index.states) {
      const word = { G: "solved in one decode", S: "recovered by search", U: "missed by search" };
      columns.push(["state", "state", (place) => {
        const state = index.states[place];
        return cell({ title: word[state] }, element("span", { class: "state" }, state));
      }]);
    }
    if (index.k) {
      columns.push(["samples", "samples", (place) => cell(
        { "aria-label": `${index.passing[place]} of ${index.k} samples pass` },
        `${index.passing[place]}/${index.k}`,
      )]);
    }
    columns.push(["before", index.before.split(",")[0], (place) => {
      const verdict = index.verdicts[index.source[place]];
      return cell({ class: `tone-${tone(verdict)}` }, verdict);
    }]);
    for (const condition of index.conditions) {
      const models = selectModels(condition, view.seed);
      columns.push([`in.${condition.name}`, condition.label, (place) => {
        const letters = models.map((model) => model.outcomes[place]);
        const words = letters.map((letter, at) => `${OUTCOMES[letter][0]}${formatSeed(models, at)}`);
        const label = words.join(", ") || "no such seed";
        return cell({ class: "marks", "aria-label": label, title: label }, letters.map(buildMark));
      }]);
    }
    return columns;
  }

  /** Builds the beginning of a problem, or the text around a hit. */
  #words(place) {
    const words = element("bdi", { class: "words" }, this.index.heads[place]);
    if (!this.search || this.search.ids) return words;
    const { pattern } = this.search;
    this.texts.findHit(place, pattern).then((hit) => {
      if (!hit) return;
      const line = hit[1].replace(/\s+/g, " ");
      words.replaceChildren(element("span", { class: "source" }, `${hit[0]}: `), ...markHits(line, pattern, 12));
    });
    return words;
  }

  #headRow() {
    this.columns = this.#columns();
    const { sort } = this.view;
    this.#setWidths();
    const cells = this.columns.map(([key, name]) => {
      const order = sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none";
      const next = order === "ascending" ? `-${key}` : order === "descending" ? "" : key;
      const button = element(
        "button",
        { type: "button", title: `sort by ${name}`, onclick: () => this.onChoice({ sort: next }) },
        element("span", {}, allowBreaks(name)),
      );
      return element("div", { role: "columnheader", "aria-sort": order }, button);
    });
    return element("div", { role: "row", class: "row", "aria-rowindex": 1 }, cells);
  }

  /** Sets widths in rem; CSS chooses those for a wide page or a phone; words do not break. */
  #setWidths() {
    const { conditions } = this.index;
    const seeds = conditions.map((condition) => selectModels(condition, this.view.seed).length);
    const fixed = this.columns.slice(1, -seeds.length || undefined).map(([key]) => (key === "state" ? 2.5 : 3.5));
    const set = (name, value) => this.root.style.setProperty(name, value);
    const sum = (widths) => widths.reduce((total, width) => total + width + 0.4, 0);
    const words = this.columns.slice(1).map(([key, name]) => measureLongestWord(name) + (this.view.sort.endsWith(key) ? 1 : 0.15));
    const widths = (minimum, letters) => minimum.map((width, at) => Math.max(width, words[at] * letters).toFixed(3) * 1);
    const marks = (minimum, scale) => seeds.map((count) => Math.max(minimum, (1.05 * count + 0.3) * scale));
    const wide = widths([...fixed, ...marks(3.6, 1)], 0.8125);
    set("--columns", `minmax(0, 1fr) ${wide.map((width) => `${width}rem`).join(" ")}`);
    set("--least", `${sum(wide) + 11}rem`);
    const narrow = widths([...fixed.map((width) => width - 0.7), ...marks(2.45, 0.7)], 0.6875);
    set("--narrow", narrow.map((width) => `minmax(${width}rem, ${width}fr)`).join(" "));
    set("--least-narrow", `${sum(narrow) + 2}rem`);
  }

  #row(at) {
    const place = this.#places[at];
    const row = element(
      "div",
      {
        role: "row",
        class: "row",
        id: `row-${place}`,
        "aria-rowindex": at + 2,
        onclick: () => this.onChoice({ problem: this.index.ids[place] }),
      },
      this.columns.map(([, , cell]) => cell(place)),
    );
    row.style.transform = `translateY(${at * this.height}px)`;
    return row;
  }
}

/** Allows line breaks after marks in a name, not within a word. */
function allowBreaks(name) {
  return name.split(/(?<=[_\-/.])/).flatMap((part) => [part, element("wbr")]).slice(0, -1);
}

const ruler = new OffscreenCanvas(1, 1).getContext("2d");

/** Returns the width of a name's longest word, in letter heights, with a maximum. */
function measureLongestWord(name) {
  ruler.font = `600 100px ${getComputedStyle(document.body).fontFamily}`;
  const widths = name.split(/\s+|(?<=[_\-/.])/).map((word) => ruler.measureText(word).width / 100);
  return Math.min(9, Math.max(...widths));
}

/** Returns the seed of a mark, where a condition has several. */
function formatSeed(models, at) {
  return models.length > 1 ? ` under seed ${models[at].seed}` : "";
}
