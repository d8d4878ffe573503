// The view: filters and the open problem, stored in the page's address, and matching problems.

/** Letters of the outcomes that each choice includes. */
const CHOICES = {
  corrected: "c",
  regressed: "r",
  kept: "k",
  missed: "m",
  changed: "cr",
  right: "ck",
  wrong: "rm",
  higher: "h",
  lower: "l",
  equal: "e",
};

/** The order of outcomes in a sorted column. */
const RANK = { c: 1, h: 1, k: 0.01, e: 0, m: -0.01, r: -1, l: -1 };

function emptyView() {
  return {
    query: "", states: "", seed: "any", before: "", samples: "", outcomes: {}, fields: {}, sort: "", problem: "",
  };
}

/** Reads the view from an address; values that are not in the index are left out. */
function parseView(hash, index) {
  const view = emptyView();
  for (const [key, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    const [kind, ...rest] = key.split(".");
    const name = rest.join(".");
    if (kind === "q") view.query = value;
    if (kind === "state" && index.states) view.states = [..."GSU"].filter((state) => value.includes(state)).join("");
    if (kind === "seed" && (value === "every" || index.seeds.includes(value))) view.seed = value;
    if (kind === "before" && [...listVerdicts(index), ...listReasons(index)].includes(value)) view.before = value;
    if (kind === "samples" && index.samples.length && listUnjudged(index).includes(value)) view.samples = value;
    const known = Object.hasOwn(CHOICES, value) || [...listUnjudged(index), ...listReasons(index)].includes(value);
    if (kind === "in" && known && index.conditions.some((condition) => condition.name === name)) {
      view.outcomes[name] = value;
    }
    if (kind === "field" && Object.hasOwn(index.fields, name)) {
      if (index.fields[name].values.includes(value)) view.fields[name] = value;
    }
    if (kind === "sort" && listColumnKeys(index).includes(value.replace(/^-/, ""))) view.sort = value;
    if (kind === "open" && index.places.has(value)) view.problem = value;
  }
  return view;
}

function formatHash(view) {
  const parameters = new URLSearchParams();
  if (view.query) parameters.set("q", view.query);
  if (view.states) parameters.set("state", view.states);
  if (view.seed !== "any") parameters.set("seed", view.seed);
  if (view.before) parameters.set("before", view.before);
  if (view.samples) parameters.set("samples", view.samples);
  for (const [name, value] of Object.entries(view.outcomes)) parameters.set(`in.${name}`, value);
  for (const [name, value] of Object.entries(view.fields)) parameters.set(`field.${name}`, value);
  if (view.sort) parameters.set("sort", view.sort);
  if (view.problem) parameters.set("open", view.problem);
  return `#${parameters}`;
}

function listColumnKeys(index) {
  const fixed = ["id", "state", "samples", "before"];
  return [...fixed, ...index.conditions.map((condition) => `in.${condition.name}`)];
}

/** Returns the verdicts that are words, not numbers. */
function listVerdicts(index) {
  return index.verdicts.filter((word) => Number.isNaN(Number(word)));
}

/** Returns the verdicts that are neither right nor wrong: timeout and error. */
function listUnjudged(index) {
  return listVerdicts(index).filter((word) => word !== "right" && word !== "wrong").sort();
}

/** Returns the choices of a kind of reason, as in an address. */
function listReasons(index) {
  return index.kinds.map((kind) => `because ${kind}`);
}

/** Returns a test whether a response matches a choice, by its verdict or by its reason. */
function buildVerdictTest(index, value) {
  const kind = listReasons(index).indexOf(value) + 1;
  if (kind) return ({ at }, place) => index.reasons[at][place] === kind;
  const verdict = index.verdicts.indexOf(value);
  return ({ verdicts }, place) => verdicts[place] === verdict;
}

/** Returns the same test, also by the outcome of the problem. */
function buildChoiceTest(index, value) {
  const letters = CHOICES[value];
  return letters ? ({ outcomes }, place) => letters.includes(outcomes[place]) : buildVerdictTest(index, value);
}

/** Returns the models of a condition that a choice of seeds includes. */
function selectModels(condition, seed) {
  const models = condition.models.filter((model) => model.seed === seed);
  return seed === "any" || seed === "every" ? condition.models : models;
}

/** Returns the places of matching problems, in order; ``hits`` are those of a search. */
function filterProblems(index, view, hits) {
  const tests = [];
  if (hits) tests.push((place) => hits[place]);
  if (view.states) tests.push((place) => view.states.includes(index.states[place]));
  for (const [name, value] of Object.entries(view.fields)) {
    const { values, codes } = index.fields[name];
    const code = values.indexOf(value);
    tests.push((place) => codes[place] === code);
  }
  if (view.before) {
    const fits = buildVerdictTest(index, view.before);
    tests.push((place) => fits({ at: 0, verdicts: index.source }, place));
  }
  if (view.samples) {
    const verdict = index.verdicts.indexOf(view.samples);
    tests.push((place) => index.samples[place].includes(verdict));
  }
  for (const condition of index.conditions) {
    const value = view.outcomes[condition.name];
    if (!value) continue;
    const models = selectModels(condition, view.seed);
    const matches = buildChoiceTest(index, value);
    const fits = (place) => (model) => matches(model, place);
    const every = view.seed === "every" && models.length;
    tests.push((place) => every ? models.every(fits(place)) : models.some(fits(place)));
  }
  const matching = [];
  for (let place = 0; place < index.count; place++) {
    if (tests.every((test) => test(place))) matching.push(place);
  }
  return view.sort ? sortProblems(index, view, matching) : matching;
}

function sortProblems(index, view, places) {
  const down = view.sort.startsWith("-") ? -1 : 1;
  const key = view.sort.replace(/^-/, "");
  if (key === "id") return down > 0 ? places : places.reverse();
  const keys = new Float64Array(index.count);
  const readKey = buildSortKey(index, view, key);
  for (const place of places) keys[place] = readKey(place);
  return places.sort((a, b) => down * (keys[a] - keys[b]) || a - b);
}

function buildSortKey(index, view, key) {
  if (key === "state") return (place) => "GSU".indexOf(index.states[place]);
  if (key === "samples") return (place) => index.passing[place];
  if (key === "before") {
    const numbers = index.verdicts.map(Number);
    if (numbers.every((number) => !Number.isNaN(number))) return (place) => numbers[index.source[place]];
    const words = [...index.verdicts].sort();
    return (place) => words.indexOf(index.verdicts[index.source[place]]);
  }
  const condition = index.conditions.find(({ name }) => `in.${name}` === key);
  const models = selectModels(condition, view.seed);
  return (place) => models.reduce((sum, model) => sum + RANK[model.outcomes[place]], 0);
}
