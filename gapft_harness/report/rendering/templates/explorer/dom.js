// Elements. A model's output is always inserted as text: as a string among the children.

/** Creates an element with attributes (false and null are left out) and children. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

const byId = (id) => document.getElementById(id);

const whole = (number) => number.toLocaleString("en");

/** Returns the class name of a verdict: right, wrong, or other. */
const tone = (verdict) => (verdict === "right" ? "right" : verdict === "wrong" ? "wrong" : "else");

const toneOf = { c: "right", k: "kept", r: "wrong", m: "missed", h: "right", l: "wrong", e: "kept" };

/** Creates the mark of an outcome; a word next to it or its parent's label has the same meaning. */
function mark(letter) {
  return element("span", { class: `mark ${toneOf[letter]}`, "aria-hidden": "true" }, OUTCOMES[letter][1]);
}
