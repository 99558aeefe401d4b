// Shows the calls of openapi.json. All text goes in as text, never as markup.
const add = (parent, tag, text, kind) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return parent.appendChild(made);
};

const addExamples = (parent, title, content) => {
  for (const [mediaType, { example }] of Object.entries(content || {})) {
    add(parent, "div", `${title}: ${mediaType}`);
    add(parent, "pre", typeof example === "string" ? example : JSON.stringify(example, null, 2));
  }
};

const show = (description) => {
  const calls = document.getElementById("calls");
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, call] of Object.entries(methods)) {
      const head = add(calls, "h2");
      add(head, "span", method.toUpperCase(), "method");
      add(head, "code", ` ${path}`);
      add(calls, "p", call.description || call.summary || "");
      for (const each of call.parameters || []) {
        add(calls, "div", `${each.in} ${each.name}: ${each.description || each.schema.type || ""}`);
      }
      addExamples(calls, "body", call.requestBody && call.requestBody.content);
      for (const [status, answer] of Object.entries(call.responses)) {
        if (status !== "default") addExamples(calls, `answer ${status}`, answer.content);
      }
    }
  }
};

fetch("/openapi.json").then((answer) => answer.json()).then(show);
