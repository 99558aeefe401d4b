/** The notifications that the console has received, the newest first. */

import type { Found } from "./api";

export const FEED_MAX = 100;

export interface Line {
  /** Counts up; the key of a line. */
  number: number;
  query: string;
  subscriber: string;
  object: Found | null;
  what: string;
  at_ms: number;
}

/** Says what a notification tells. */
export function told(data: Record<string, unknown>): string {
  const object = data.object as Found | undefined;
  if (object && typeof object === "object") {
    const event = typeof data.event === "string" ? `${data.event} ${text(data.track)}: ` : "";
    return `${event}${object.text || object.id}`;
  }
  if (data.event === "ended") return `has ended (${text(data.reason)})`;
  if (Array.isArray(data.terms)) return data.terms.map((pair: unknown) => (Array.isArray(pair) ? `${text(pair[0])} ${text(pair[1])}` : "")).join(", ") || "no words";
  if (Array.isArray(data.objects)) return `now ${data.objects.length ? data.objects.map(text).join(", ") : "nothing"}`;
  return JSON.stringify(data);
}

const text = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value) ?? "");

/** A bounded feed, with counts for each query. */
export class Feed {
  readonly lines: Line[] = [];
  readonly counts = new Map<string, number>();
  total = 0;

  add(subscriber: string, data: unknown, now_ms: number): Line | null {
    if (typeof data !== "object" || data === null) return null;
    const members = data as Record<string, unknown>;
    const query = text(members.query);
    this.total += 1;
    this.counts.set(query, (this.counts.get(query) ?? 0) + 1);
    const object = typeof members.object === "object" && members.object !== null ? (members.object as Found) : null;
    const line = { number: this.total, query, subscriber, object, what: told(members), at_ms: now_ms };
    this.lines.unshift(line);
    if (this.lines.length > FEED_MAX) this.lines.length = FEED_MAX;
    return line;
  }
}
