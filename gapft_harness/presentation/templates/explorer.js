// The problems of the page: filters, the list, and the problem that the address names.

/** Rows that are added to the list at a time. */
const ROWS = 200;
/** Texts with more characters are folded. */
const FOLD_CHARS = 1200;
/** Values of a fact up to which it becomes a filter. */
const MAX_VALUES = 40;
/** Hits that are marked in a problem. */
const MAX_MARKED = 2000;

const byId = (id) => document.getElementById(id);
const isNumber = (verdict) => !Number.isNaN(Number(verdict));
const unique = (values) => [...new Set(values)];

/** Creates an element. Texts of models are always children: they are inserted as text. */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

/** Unpacks the JSON value of a script element. */
async function unpack(script) {
  const packed = Uint8Array.from(atob(script.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

const index = await unpack(byId("index"));
const { models, problems } = index;
const chunks = [...document.querySelectorAll("script.chunk")];
const places = new Map(problems.map(({ id }, place) => [id, place]));
const factNames = Object.keys(problems[0]?.facts ?? {});
const modelNames = unique(models.map(({ name }) => name));
/** Whether there are verdicts; a number that is higher may be better or worse. */
const isJudged = !problems.every(({ verdicts }) => verdicts.every(isNumber));
const [ROSE, FELL] = isJudged ? ["gained", "lost"] : ["higher", "lower"];
/** Tests a model's outcome, by its position among the models. */
const OUTCOMES = {
  [ROSE]: ({ changes }, at) => changes[at] > 0,
  [FELL]: ({ changes }, at) => changes[at] < 0,
  [`${ROSE} or ${FELL}`]: ({ changes }, at) => changes[at] !== 0,
};
const query = byId("query");
const detail = byId("problem");

let kept = { number: -1, texts: [] };

/** Reads the texts of a problem. */
async function readTexts(place) {
  const number = Math.floor(place / index.chunk);
  if (kept.number !== number) kept = { number, texts: await unpack(chunks[number]) };
  return kept.texts[place % index.chunk];
}

// Filters

const factFilters = new Map();
for (const name of factNames) {
  const values = unique(problems.map(({ facts }) => facts[name])).sort(new Intl.Collator("en", { numeric: true }).compare);
  if (values.length > 1 && values.length <= MAX_VALUES) factFilters.set(name, addFilter(name, values));
}
const modelFilter = modelNames.length > 1 ? addFilter("model", modelNames) : null;
const verdictWords = unique(problems.flatMap(({ verdicts }) => verdicts)).filter((word) => !isNumber(word));
const outcomeFilter = addFilter("outcome", [...(models.length > 1 ? Object.keys(OUTCOMES) : []), ...verdictWords.sort()]);

function addFilter(name, values) {
  const options = values.map((value) => element("option", { value }, value));
  const select = element("select", {}, element("option", {}, "any"), options);
  select.addEventListener("change", showMatches);
  byId("filters").append(element("label", {}, name, select));
  return select;
}

/** Returns the chosen value of a filter; null: any. */
const chosen = (filter) => (filter?.selectedIndex > 0 ? filter.value : null);

function listMatches() {
  const facts = [...factFilters].map(([name, filter]) => [name, chosen(filter)]).filter(([, value]) => value !== null);
  const [name, outcome] = [chosen(modelFilter), chosen(outcomeFilter)];
  const test = outcome === null ? () => true : OUTCOMES[outcome] ?? (({ verdicts }, at) => verdicts[at] === outcome);
  const positions = [...models.keys()].filter((at) => name === null || models[at].name === name);
  return [...problems.keys()].filter((place) =>
    (!hits || hits.has(place))
    && facts.every(([fact, value]) => problems[place].facts[fact] === value)
    && positions.some((at) => test(problems[place], at)));
}

// Search

/** The places of the problems that the search found; null: there is no search. */
let hits = null;
let pattern = null;
let searches = 0;

/** Builds a pattern from typed text: case and kind of white space are ignored. */
function buildPattern(text) {
  const words = text.trim().split(/\s+/);
  return new RegExp(words.map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("\\s+"), "gi");
}

/** Searches the ids and all texts. */
async function search() {
  const number = ++searches;
  pattern = query.value.trim() ? buildPattern(query.value) : null;
  const matching = pattern && new Set();
  for (const [at, chunk] of pattern ? chunks.entries() : []) {
    const start = at * index.chunk;
    const texts = await unpack(chunk);
    if (number !== searches) return;
    texts.forEach((item, place) => {
      if (listTexts(problems[start + place].id, item).some((text) => text.search(pattern) >= 0)) matching.add(start + place);
    });
    byId("count").textContent = `Searched ${Math.round((100 * (at + 1)) / chunks.length)}%`;
  }
  hits = matching;
  showMatches();
}

function listTexts(id, { prompt, gold, responses, samples }) {
  const parts = ({ text, reason, answer, reasoning, attempts }) => [text, reason, answer, reasoning, ...attempts.flat()];
  return [id, prompt, gold, ...[...responses, ...samples].flatMap(parts)];
}

// The list

let listed = [];
let rowCount = 0;

function showMatches() {
  showList();
  showProblem(); // its neighbours in the list may be others
}

function showList() {
  listed = listMatches();
  rowCount = 0;
  byId("list").querySelector("tbody").replaceChildren();
  addRows(ROWS);
  byId("list").scrollTop = 0;
  const cut = index.cut === null ? "" : `; texts of more than ${index.cut.toLocaleString("en")} characters lack their middle`;
  byId("count").textContent = `${listed.length.toLocaleString("en")} of ${problems.length.toLocaleString("en")} problems${cut}`;
}

/** Adds rows until the list has as many. */
function addRows(count) {
  byId("list").querySelector("tbody").append(...listed.slice(rowCount, count).map(buildRow));
  rowCount = Math.max(rowCount, Math.min(count, listed.length));
  byId("more").hidden = rowCount === listed.length;
}

function buildRow(place) {
  const problem = problems[place];
  const link = element("a", { href: `#${encodeURIComponent(problem.id)}` }, element("bdi", {}, problem.id));
  const marks = modelNames.map((name) => element("td", {}, models.map((model, at) => (model.name === name ? buildMark(problem, at) : null))));
  return element(
    "tr",
    { "data-place": place },
    element("th", { scope: "row" }, link, element("bdi", { class: "head" }, problem.head)),
    factNames.map((name) => element("td", {}, problem.facts[name])),
    marks,
  );
}

/** Builds the mark of a model's outcome, with its meaning in words. */
function buildMark({ verdicts, changes }, at) {
  const verdict = verdicts[at];
  const number = at ? "=" : verdict;
  const unchanged = { right: "●", wrong: "○" }[verdict] ?? (isNumber(verdict) ? number : "–");
  const mark = changes[at] > 0 ? "▲" : changes[at] < 0 ? "▼" : unchanged;
  const label = `${nameModel(models[at])}: ${describeOutcome(verdict, changes[at])}`;
  const color = isJudged && changes[at] ? (changes[at] > 0 ? "right" : "wrong") : "same";
  return element("span", { role: "img", title: label, "aria-label": label, class: color }, mark);
}

const nameModel = ({ name, seed }) => (seed ? `${name}, seed ${seed}` : name);
const describeOutcome = (verdict, change) => verdict + (change > 0 ? `, ${ROSE}` : change < 0 ? `, ${FELL}` : "");

function markRow() {
  document.querySelector("tr[aria-current]")?.removeAttribute("aria-current");
  const row = document.querySelector(`tr[data-place="${readPlace()}"]`);
  row?.setAttribute("aria-current", "true");
  row?.querySelector("a").scrollIntoView({ block: "nearest" });
}

// One problem

/** Returns the id of the problem that the address names. */
function readId() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return location.hash.slice(1);
  }
}

const readPlace = () => places.get(readId());

/** Shows the problem that the address names. */
async function showProblem() {
  const [id, place] = [readId(), readPlace()];
  detail.hidden = !id;
  document.body.classList.toggle("open", Boolean(id));
  const at = listed.indexOf(place);
  if (at >= rowCount) addRows(at + ROWS);
  markRow();
  if (!id) return;
  const texts = place === undefined ? null : await readTexts(place);
  if (id !== readId()) return;
  const isNew = detail.dataset.id !== id;
  detail.dataset.id = id;
  const head = element("div", { class: "bar" }, element("h2", {}, element("bdi", {}, id)), buildButtons(place));
  detail.replaceChildren(head, ...(texts ? buildTexts(problems[place], texts) : [element("p", {}, "This page does not have this problem.")]));
  if (isNew) detail.scrollTop = 0;
  markHits();
}

function buildButtons(place) {
  const at = listed.indexOf(place);
  const step = (by, label) => element(
    "button", { type: "button", onclick: () => move(by), ...(listed[at + by] === undefined ? { disabled: "" } : {}) }, label);
  return [step(-1, "Previous"), step(1, "Next"), element("button", { type: "button", onclick: () => move(null) }, "Close")];
}

/** Opens the next (1) or the previous problem (-1) of the list, or none (null). */
function move(step) {
  const at = listed.indexOf(readPlace());
  const place = step === null ? undefined : listed[at < 0 ? 0 : at + step];
  if (step !== null && place === undefined) return;
  location.hash = place === undefined ? "" : encodeURIComponent(problems[place].id);
}

function buildTexts(problem, { prompt, gold, responses, samples }) {
  const facts = factNames.map((name) => element("div", {}, element("dt", {}, name), element("dd", {}, element("bdi", {}, problem.facts[name]))));
  return [
    element("dl", {}, facts, element("div", {}, element("dt", {}, "gold"), element("dd", {}, element("code", {}, gold)))),
    buildFolded("Prompt", prompt, prompt.length <= FOLD_CHARS),
    element("div", { class: "responses" }, responses.map((response, at) =>
      buildResponse(nameModel(models[at]), problem.verdicts[at], problem.changes[at], response))),
    samples.length
      ? element(
        "details", {}, element("summary", {}, `${samples.length} samples`),
        element("div", { class: "responses" }, samples.map((sample, at) => buildResponse(`Sample ${at + 1}`, sample.verdict, 0, sample))),
      )
      : "",
  ];
}

function buildResponse(name, verdict, change, { text, reason, answer, reasoning, attempts }) {
  return element(
    "article", { class: verdict },
    element("h3", {}, element("bdi", {}, name), element("span", {}, describeOutcome(verdict, change))),
    reason ? element("p", { class: "note" }, reason) : null,
    answer ? element("p", { class: "note" }, "read: ", element("code", {}, answer)) : null,
    reasoning ? buildFolded("Reasoning", reasoning) : null,
    attempts.map(([attempt, feedback], at) => buildFolded(`Attempt ${at + 1}`, `${attempt}\n\nFeedback: ${feedback}`)),
    element("pre", {}, text),
  );
}

function buildFolded(name, text, open = false) {
  return element(
    "details", open ? { open: "" } : {},
    element("summary", {}, `${name}, ${text.length.toLocaleString("en")} characters`), element("pre", {}, text));
}

/** Marks the hits of the search in the problem, and unfolds texts with hits. */
function markHits() {
  const ranges = [];
  const walk = document.createTreeWalker(detail, NodeFilter.SHOW_TEXT);
  while (pattern && walk.nextNode()) {
    const node = walk.currentNode;
    if (!node.parentElement.closest("pre, code, .note, h2")) continue;
    for (const { index: start, 0: { length } } of node.data.matchAll(pattern)) {
      if (ranges.length === MAX_MARKED) break;
      ranges.push(new StaticRange({ startContainer: node, startOffset: start, endContainer: node, endOffset: start + length }));
      for (let fold; (fold = node.parentElement.closest("details:not([open])"));) fold.open = true;
    }
  }
  CSS.highlights?.set("found", new Highlight(...ranges));
}

// Start

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  Escape: () => move(null),
  "/": () => query.focus(),
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  if (event.target.matches("input, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  event.preventDefault();
  KEYS[event.key]();
});
let timer = 0;
query.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, 200);
});
byId("more").addEventListener("click", () => addRows(rowCount + ROWS));
addEventListener("hashchange", showProblem);

const titles = ["problem", ...factNames, ...modelNames].map((name) => element("th", { scope: "col" }, element("bdi", {}, name)));
byId("list").querySelector("thead").append(element("tr", {}, titles));
showList();
await showProblem();
document.body.dataset.ready = "true";
