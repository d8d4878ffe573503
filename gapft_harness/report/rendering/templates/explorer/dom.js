// Elements. A model's output is always inserted as text: as a string among the children.

/** Creates an element with attributes (false and null are left out) and children. */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

const byId = (id) => document.getElementById(id);

const formatNumber = (number) => number.toLocaleString("en");

/** Returns the class name of a verdict: right, wrong, or other. */
const tone = (verdict) => (verdict === "right" ? "right" : verdict === "wrong" ? "wrong" : "else");

const OUTCOME_TONES = { c: "right", k: "kept", r: "wrong", m: "missed", h: "right", l: "wrong", e: "kept" };

/** Creates the mark of an outcome; a word next to it or its parent's label has the same meaning. */
function buildMark(letter) {
  return element("span", { class: `mark ${OUTCOME_TONES[letter]}`, "aria-hidden": "true" }, OUTCOMES[letter][1]);
}
