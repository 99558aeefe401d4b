/** Elements. Whatever comes from elsewhere goes in as text, never as markup. */

type Props = Record<string, string | boolean | number | ((event: Event) => void)>;
type Child = Node | string | null | undefined | false;

/** Makes an element. Properties that are functions are listeners: `onclick`. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") made.toggleAttribute(name, value);
    else made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
  return made;
}

/** Replaces what an element holds, unless it holds the same already: the focus stays. */
export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
}

/** Returns the element of the page with an id. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

/** What stands where a figure is not known. */
export const UNKNOWN = "–";

/** Writes a figure with three digits; a dash where it is not known. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (value >= 10_000) return `${(value / 1_000).toLocaleString("en", { maximumFractionDigits: 1 })}k`;
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 && value > 0 ? 1 : 0 });
}

/** Writes how long ago something was. */
export function ago(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3_600) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3_600)} h ago`;
}
