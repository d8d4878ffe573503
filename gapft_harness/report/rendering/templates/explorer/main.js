// Builds the page: one view, changed by the address, the filters, the list and the keys.

if (!globalThis.DecompressionStream) {
  byId("count").textContent = "This browser is too old to unpack the page: use a browser of 2023 or later.";
}
const index = await readIndex();
const texts = new Texts(index);
const list = new List(byId("list"), index, texts, change);
const filters = new Filters(byId("choices"), index, change);
const detail = new Detail(byId("detail"), index, texts, ({ step, close }) => (close ? closeProblem() : move(step)));
const query = byId("query");

let view = parseView(location.hash, index);
let places = [];
let current = null;
let hits = null;
let lastQuery = "";
let progress = 1;
let queryTimer = 0;
let lastWrite = 0;
let addressTimer = 0;

/** Applies the user's changes to the view, and shows it. */
function change(updates) {
  const before = view;
  const opened = updates.problem && !view.problem;
  view = { ...view, ...updates, problem: updates.problem ?? view.problem };
  if (before.query !== view.query) search();
  writeAddress(opened);
  const shown = show();
  if (opened) shown.then(() => byId("detail").querySelector("h2")?.focus({ preventScroll: true }));
}

/** Writes the view into the address, at a low rate because browsers limit it. */
function writeAddress(opened = false) {
  clearTimeout(addressTimer);
  const rest = lastWrite + 350 - performance.now();
  if (opened) history.pushState(null, "", formatHash(view));
  else if (rest > 0) addressTimer = setTimeout(writeAddress, rest);
  else {
    history.replaceState(null, "", formatHash(view));
    lastWrite = performance.now();
  }
}

function show() {
  places = filterProblems(index, view, view.query.trim() ? hits ?? new Uint8Array(index.count) : null);
  if (view.problem) current = index.places.get(view.problem);
  if (!places.includes(current) && !view.problem) current = places[0] ?? null;
  filters.show(view);
  if (document.activeElement !== query) query.value = view.query;
  byId("more").textContent = filters.count ? `Filters (${filters.count})` : "Filters";
  byId("clear").hidden = !filters.count && !view.query && !view.sort;
  showCount();
  list.show(places, view, current, progress < 1 ? null : buildEmptyMessage());
  return showDetail();
}

/** Returns the text in place of an empty list. */
function buildEmptyMessage() {
  const { query: text } = view;
  const words = [element("p", {}, text.trim() ? `Nothing matches “${text.trim()}”.` : "Nothing matches these choices.")];
  const parsed = parseSearch(text);
  if (text.trim() && !parsed.ids && index.ids.some((name) => parsed.pattern.test(name))) {
    words.push(element("button", { type: "button", onclick: () => searchFor(`id:${text.trim()}`) }, "Search the ids instead"));
  }
  if (text.trim() && filters.count) words.push(element("p", { class: "note" }, "Filters are also set: Clear removes them."));
  return words;
}

/** Searches for a text, as if the user had typed it. */
function searchFor(words) {
  query.value = words;
  change({ query: words });
}

function showCount() {
  const all = `${formatNumber(index.count)} ${index.noun}s`;
  const none = places.length || progress < 1 ? "" : "Nothing matches: ";
  const some = places.length === index.count ? all : `${none}${formatNumber(places.length)} of ${all}`;
  const cut = index.cut ? `; texts of more than ${formatNumber(index.cut)} characters lack their middle` : "";
  byId("count").textContent = progress < 1 ? `${some}, searched ${Math.round(100 * progress)}%` : some + cut;
}

function showDetail() {
  const open = Boolean(view.problem);
  const wasOpen = !byId("detail").hidden;
  byId("detail").hidden = !open;
  document.body.classList.toggle("open", open);
  if (!open) detail.clear();
  if (open !== wasOpen) list.move(current);
  return open ? detail.show(current, view, places.indexOf(current), places.length) : Promise.resolve();
}

/** Searches all texts, or only the earlier hits if the query became longer. */
async function search() {
  const requested = view.query;
  if (!requested.trim()) {
    [hits, lastQuery, progress] = [null, "", 1];
    return;
  }
  const parsed = parseSearch(requested);
  const isLonger = requested.startsWith(lastQuery) && parseSearch(lastQuery).ids === parsed.ids;
  const within = hits && lastQuery && isLonger && progress === 1 ? hits : null;
  const update = (partial, share) => {
    if (requested !== view.query) return false;
    [hits, progress] = [partial, share];
    show();
    return true;
  };
  progress = 0;
  const allHits = await texts.search(parsed, within, update);
  if (!allHits || requested !== view.query) return;
  [hits, lastQuery, progress] = [allHits, requested, 1];
  show();
}

function move(step) {
  const at = places.indexOf(current);
  const next = places[Math.max(0, Math.min(places.length - 1, at < 0 ? 0 : at + step))];
  if (next === undefined) return;
  current = next;
  if (view.problem) {
    view.problem = index.ids[current];
    writeAddress();
    showDetail();
  }
  list.move(current);
}

function closeProblem() {
  view.problem = "";
  writeAddress();
  showDetail();
  byId("list").focus({ preventScroll: true });
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  "/": () => query.focus(),
  "?": () => byId("help").showModal(),
  Escape: () => (view.problem ? closeProblem() : null),
};

/** Keys of the list only, where they do not scroll a text. */
const LIST_KEYS = {
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  PageDown: () => move(Math.floor(byId("list").clientHeight / list.height) - 1),
  PageUp: () => move(1 - Math.floor(byId("list").clientHeight / list.height)),
  Home: () => move(-places.length),
  End: () => move(places.length),
  Enter: () => (current === null ? null : change({ problem: index.ids[current] })),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const { target } = event;
  if (target === query) {
    if (event.key !== "Escape" && event.key !== "Enter" && event.key !== "ArrowDown") return;
    event.preventDefault();
    byId("list").focus();
    return;
  }
  const inList = target === byId("list") || target === document.body;
  const action = KEYS[event.key] ?? (inList ? LIST_KEYS[event.key] : null);
  if (!action || (target.matches("select, input") && event.key !== "Escape")) return;
  event.preventDefault();
  action();
});

query.addEventListener("input", () => {
  clearTimeout(queryTimer);
  queryTimer = setTimeout(() => change({ query: query.value }), 120);
});
byId("more").addEventListener("click", () => {
  const open = byId("choices").classList.toggle("shown");
  byId("more").setAttribute("aria-expanded", open);
});
byId("clear").addEventListener("click", () => {
  query.value = "";
  change({ ...emptyView(), problem: undefined });
});
byId("help-open").addEventListener("click", () => byId("help").showModal());
byId("help-close").addEventListener("click", () => byId("help").close());
addEventListener("popstate", () => {
  clearTimeout(addressTimer);
  view = parseView(location.hash, index);
  search();
  show();
});

const letters = new Set(index.models.map((model) => [...new Set(model.outcomes)]).flat());
for (const [letter, [word]] of Object.entries(OUTCOMES)) {
  if (letters.has(letter)) {
    byId("marks").append(element("div", {}, element("dt", {}, buildMark(letter)), element("dd", {}, word)));
  }
}
search();
show();
document.body.dataset.ready = "true";
