// What is chosen and open, which the page's address holds, and the problems that fit it.

/** Choices of an outcome: their words and the letters that they stand for. */
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

/** How a column sorts what became of a problem. */
const RANK = { c: 1, h: 1, k: 0.01, e: 0, m: -0.01, r: -1, l: -1 };

function emptyView() {
  return { query: "", states: "", seed: "any", outcomes: {}, fields: {}, sort: "", problem: "" };
}

/** The view that an address names; what the index does not know of it is left out. */
function viewOf(hash, index) {
  const view = emptyView();
  for (const [key, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    const [kind, ...rest] = key.split(".");
    const name = rest.join(".");
    if (kind === "q") view.query = value;
    if (kind === "state" && index.states) view.states = [..."GSU"].filter((one) => value.includes(one)).join("");
    if (kind === "seed" && (value === "every" || index.seeds.includes(value))) view.seed = value;
    if (kind === "in" && Object.hasOwn(CHOICES, value) && index.conditions.some((of) => of.name === name)) {
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

/** The models of a condition that a choice of seeds looks at. */
function modelsOf(condition, seed) {
  const one = condition.models.filter((model) => model.seed === seed);
  return seed === "any" || seed === "every" ? condition.models : one;
}

/** The places of the problems that fit, in order; ``hits`` are those that a search found. */
function fitting(index, view, hits) {
  const tests = [];
  if (hits) tests.push((place) => hits[place]);
  if (view.states) tests.push((place) => view.states.includes(index.states[place]));
  for (const [name, value] of Object.entries(view.fields)) {
    const { values, codes } = index.fields[name];
    const code = values.indexOf(value);
    tests.push((place) => codes[place] === code);
  }
  for (const condition of index.conditions) {
    const letters = CHOICES[view.outcomes[condition.name]];
    if (!letters) continue;
    const models = modelsOf(condition, view.seed);
    const fits = (place) => (model) => letters.includes(model.outcomes[place]);
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
