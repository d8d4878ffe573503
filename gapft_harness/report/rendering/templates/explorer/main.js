// Builds the page: one view, changed by the address, the filters, the list and the keys.

if (!globalThis.DecompressionStream) {
  byId("count").textContent = "This browser is too old to unpack the page: one of 2023 or later can.";
}
const index = await readIndex();
const texts = new Texts(index);
const list = new List(byId("list"), index, texts, change);
const filters = new Filters(byId("choices"), index, change);
const detail = new Detail(byId("detail"), index, texts, ({ step, close }) => (close ? shut() : move(step)));
const query = byId("query");

let view = viewOf(location.hash, index);
let places = [];
let current = null;
let hits = null;
let searched = "";
let progress = 1;
let waiting = 0;
let addressed = 0;
let addressing = 0;

/** Applies the user's change to the view, and shows it. */
function change(changed) {
  const before = view;
  const opened = changed.problem && !view.problem;
  view = { ...view, ...changed, problem: changed.problem ?? view.problem };
  if (before.query !== view.query) search();
  address(opened);
  const shown = show();
  if (opened) shown.then(() => byId("detail").querySelector("h2")?.focus({ preventScroll: true }));
}

/** Writes the view into the address, rarely, because browsers limit the rate. */
function address(opened = false) {
  clearTimeout(addressing);
  const rest = addressed + 350 - performance.now();
  if (opened) history.pushState(null, "", hashOf(view));
  else if (rest > 0) addressing = setTimeout(address, rest);
  else {
    history.replaceState(null, "", hashOf(view));
    addressed = performance.now();
  }
}

function show() {
  places = fitting(index, view, view.query.trim() ? hits ?? new Uint8Array(index.count) : null);
  if (view.problem) current = index.places.get(view.problem);
  if (!places.includes(current) && !view.problem) current = places[0] ?? null;
  filters.show(view);
  if (document.activeElement !== query) query.value = view.query;
  byId("more").textContent = filters.count ? `Filters (${filters.count})` : "Filters";
  byId("clear").hidden = !filters.count && !view.query && !view.sort;
  tell();
  list.show(places, view, current, progress < 1 ? null : nothing());
  return showDetail();
}

/** Returns the text in place of an empty list. */
function nothing() {
  const { query: said } = view;
  const words = [element("p", {}, said.trim() ? `Nothing matches “${said.trim()}”.` : "Nothing matches these choices.")];
  const sought = soughtBy(said);
  if (said.trim() && !sought.ids && index.ids.some((name) => sought.pattern.test(name))) {
    words.push(element("button", { type: "button", onclick: () => ask(`id:${said.trim()}`) }, "Search the ids instead"));
  }
  if (said.trim() && filters.count) words.push(element("p", { class: "note" }, "Filters are set too: Clear takes them away."));
  return words;
}

/** Searches for a text, as if the user had typed it. */
function ask(words) {
  query.value = words;
  change({ query: words });
}

function tell() {
  const all = `${whole(index.count)} ${index.noun}s`;
  const none = places.length || progress < 1 ? "" : "Nothing matches: ";
  const some = places.length === index.count ? all : `${none}${whole(places.length)} of ${all}`;
  const cut = index.cut ? `; texts of more than ${whole(index.cut)} characters lack their middle` : "";
  byId("count").textContent = progress < 1 ? `${some}, searched ${Math.round(100 * progress)}%` : some + cut;
}

function showDetail() {
  const open = Boolean(view.problem);
  const was = !byId("detail").hidden;
  byId("detail").hidden = !open;
  document.body.classList.toggle("open", open);
  if (!open) detail.clear();
  if (open !== was) list.move(current);
  return open ? detail.show(current, view, places.indexOf(current), places.length) : Promise.resolve();
}

/** Searches all texts; after another typed letter, only the earlier hits. */
async function search() {
  const wanted = view.query;
  if (!wanted.trim()) {
    [hits, searched, progress] = [null, "", 1];
    return;
  }
  const sought = soughtBy(wanted);
  const goesOn = wanted.startsWith(searched) && soughtBy(searched).ids === sought.ids;
  const within = hits && searched && goesOn && progress === 1 ? hits : null;
  const told = (found, share) => {
    if (wanted !== view.query) return false;
    [hits, progress] = [found, share];
    show();
    return true;
  };
  progress = 0;
  const found = await texts.search(sought, within, told);
  if (!found || wanted !== view.query) return;
  [hits, searched, progress] = [found, wanted, 1];
  show();
}

function move(step) {
  const at = places.indexOf(current);
  const next = places[Math.max(0, Math.min(places.length - 1, at < 0 ? 0 : at + step))];
  if (next === undefined) return;
  current = next;
  if (view.problem) {
    view.problem = index.ids[current];
    address();
    showDetail();
  }
  list.move(current);
}

function shut() {
  view.problem = "";
  address();
  showDetail();
  byId("list").focus({ preventScroll: true });
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  "/": () => query.focus(),
  "?": () => byId("help").showModal(),
  Escape: () => (view.problem ? shut() : null),
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
  clearTimeout(waiting);
  waiting = setTimeout(() => change({ query: query.value }), 120);
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
  clearTimeout(addressing);
  view = viewOf(location.hash, index);
  search();
  show();
});

const letters = new Set(index.models.map((model) => [...new Set(model.outcomes)]).flat());
for (const [letter, [word]] of Object.entries(OUTCOMES)) {
  if (letters.has(letter)) {
    byId("marks").append(element("div", {}, element("dt", {}, mark(letter)), element("dd", {}, word)));
  }
}
search();
show();
document.body.dataset.ready = "true";
