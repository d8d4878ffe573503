// The view: filters and the open problem, stored in the page's address, and matching problems.

/** Choices of an outcome: their words, and the letters for which they stand. */
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
function viewOf(hash, index) {
  const view = emptyView();
  for (const [key, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    const [kind, ...rest] = key.split(".");
    const name = rest.join(".");
    if (kind === "q") view.query = value;
    if (kind === "state" && index.states) view.states = [..."GSU"].filter((one) => value.includes(one)).join("");
    if (kind === "seed" && (value === "every" || index.seeds.includes(value))) view.seed = value;
    if (kind === "before" && [...verdictsOf(index), ...reasonsOf(index)].includes(value)) view.before = value;
    if (kind === "samples" && index.samples.length && unjudged(index).includes(value)) view.samples = value;
    const known = Object.hasOwn(CHOICES, value) || [...unjudged(index), ...reasonsOf(index)].includes(value);
    if (kind === "in" && known && index.conditions.some((of) => of.name === name)) {
      view.outcomes[name] = value;
    }
    if (kind === "field" && Object.hasOwn(index.fields, name)) {
      if (index.fields[name].values.includes(value)) view.fields[name] = value;
    }
    if (kind === "sort" && columnKeys(index).includes(value.replace(/^-/, ""))) view.sort = value;
    if (kind === "open" && index.places.has(value)) view.problem = value;
  }
  return view;
}

function hashOf(view) {
  const found = new URLSearchParams();
  if (view.query) found.set("q", view.query);
  if (view.states) found.set("state", view.states);
  if (view.seed !== "any") found.set("seed", view.seed);
  if (view.before) found.set("before", view.before);
  if (view.samples) found.set("samples", view.samples);
  for (const [name, value] of Object.entries(view.outcomes)) found.set(`in.${name}`, value);
  for (const [name, value] of Object.entries(view.fields)) found.set(`field.${name}`, value);
  if (view.sort) found.set("sort", view.sort);
  if (view.problem) found.set("open", view.problem);
  return `#${found}`;
}

function columnKeys(index) {
  const fixed = ["id", "state", "samples", "before"];
  return [...fixed, ...index.conditions.map((condition) => `in.${condition.name}`)];
}

/** Returns the verdicts that are words, not numbers. */
function verdictsOf(index) {
  return index.verdicts.filter((word) => Number.isNaN(Number(word)));
}

/** Returns the verdicts that are neither right nor wrong: timeout and error. */
function unjudged(index) {
  return verdictsOf(index).filter((word) => word !== "right" && word !== "wrong").sort();
}

/** Returns the choices of a kind of reason, as in an address. */
function reasonsOf(index) {
  return index.kinds.map((kind) => `because ${kind}`);
}

/** Returns a test whether a response matches a choice, by its verdict or by its reason. */
function fitsVerdict(index, value) {
  const kind = reasonsOf(index).indexOf(value) + 1;
  if (kind) return ({ at }, place) => index.reasons[at][place] === kind;
  const verdict = index.verdicts.indexOf(value);
  return ({ verdicts }, place) => verdicts[place] === verdict;
}

/** Returns the same test, also by the outcome of the problem. */
function fitsChoice(index, value) {
  const letters = CHOICES[value];
  return letters ? ({ outcomes }, place) => letters.includes(outcomes[place]) : fitsVerdict(index, value);
}

/** Returns the models of a condition that a choice of seeds includes. */
function modelsOf(condition, seed) {
  const one = condition.models.filter((model) => model.seed === seed);
  return seed === "any" || seed === "every" ? condition.models : one;
}

/** Returns the places of matching problems, in order; ``hits`` are those of a search. */
function fitting(index, view, hits) {
  const tests = [];
  if (hits) tests.push((place) => hits[place]);
  if (view.states) tests.push((place) => view.states.includes(index.states[place]));
  for (const [name, value] of Object.entries(view.fields)) {
    const { values, codes } = index.fields[name];
    const code = values.indexOf(value);
    tests.push((place) => codes[place] === code);
  }
  if (view.before) {
    const fits = fitsVerdict(index, view.before);
    tests.push((place) => fits({ at: 0, verdicts: index.source }, place));
  }
  if (view.samples) {
    const verdict = index.verdicts.indexOf(view.samples);
    tests.push((place) => index.samples[place].includes(verdict));
  }
  for (const condition of index.conditions) {
    const chosen = view.outcomes[condition.name];
    if (!chosen) continue;
    const models = modelsOf(condition, view.seed);
    const isAs = fitsChoice(index, chosen);
    const fits = (place) => (model) => isAs(model, place);
    const every = view.seed === "every" && models.length;
    tests.push((place) => every ? models.every(fits(place)) : models.some(fits(place)));
  }
  const found = [];
  for (let place = 0; place < index.count; place++) {
    if (tests.every((test) => test(place))) found.push(place);
  }
  return view.sort ? sorted(index, view, found) : found;
}

function sorted(index, view, places) {
  const down = view.sort.startsWith("-") ? -1 : 1;
  const key = view.sort.replace(/^-/, "");
  if (key === "id") return down > 0 ? places : places.reverse();
  const keys = new Float64Array(index.count);
  const of = keyOf(index, view, key);
  for (const place of places) keys[place] = of(place);
  return places.sort((a, b) => down * (keys[a] - keys[b]) || a - b);
}

function keyOf(index, view, key) {
  if (key === "state") return (place) => "GSU".indexOf(index.states[place]);
  if (key === "samples") return (place) => index.passing[place];
  if (key === "before") {
    const numbers = index.verdicts.map(Number);
    if (numbers.every((number) => !Number.isNaN(number))) return (place) => numbers[index.source[place]];
    const words = [...index.verdicts].sort();
    return (place) => words.indexOf(index.verdicts[index.source[place]]);
  }
  const condition = index.conditions.find((one) => `in.${one.name}` === key);
  const models = modelsOf(condition, view.seed);
  return (place) => models.reduce((sum, model) => sum + RANK[model.outcomes[place]], 0);
}
