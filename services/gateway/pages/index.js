// Shows the notifications of a subscriber as they arrive.
const LINES_MAX = 200;
const list = document.getElementById("list");
const state = document.getElementById("state");
let source;

const show = (event) => {
  const { query, object, ...rest } = JSON.parse(event.data);
  const line = document.createElement("li");
  const what = object ? `${object.id} (${object.lon}, ${object.lat}) ${object.text || ""}` : JSON.stringify(rest);
  line.textContent = `${query}: ${what}`;
  list.prepend(line);
  while (list.children.length > LINES_MAX) list.lastChild.remove();
};

document.getElementById("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (source) source.close();
  const name = encodeURIComponent(document.getElementById("subscriber").value);
  // The browser resumes by itself, at the id of the last event.
  source = new EventSource(`/v1/subscribers/${name}/notifications`);
  source.onopen = () => { state.textContent = "listening"; };
  source.onerror = () => { state.textContent = source.readyState === EventSource.CLOSED ? "refused" : "reconnecting"; };
  source.onmessage = show;
});
