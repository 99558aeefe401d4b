/** Calls of the gateway. */

/** An answer that is an error: a problem document of the gateway. */
export class Problem extends Error {
  override readonly name = "Problem";

  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    readonly field: string,
  ) {
    super(message);
  }
}

export interface Query {
  id: string;
  kind: string;
  mode?: string;
  text?: string;
  region?: unknown;
  [member: string]: unknown;
}

export interface Registered {
  id: string;
  subscriber: string;
  query: Query;
}

export interface Found {
  id: string;
  lon: number;
  lat: number;
  text?: string;
  ts?: number;
  [member: string]: unknown;
}

/** Calls of one gateway, with a token if it needs one. The token is kept in memory alone. */
export class Api {
  token = "";

  /** @throws Problem The answer is an error. */
  async fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.token) headers.set("Authorization", `Bearer ${this.token}`);
    const answer = await fetch(path, { ...init, headers, cache: "no-store" });
    if (answer.ok) return answer;
    let members: { detail?: string; title?: string; code?: string; field?: string } = {};
    try {
      members = await answer.json();
    } catch {
      // Of something before the gateway.
    }
    const field = members.field ?? "";
    const message = members.detail ?? members.title ?? `status ${answer.status}`;
    throw new Problem(field ? `${field}: ${message}` : message, answer.status, members.code ?? "", field);
  }

  socket(path: string): WebSocket {
    const url = new URL(path, location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    return this.token ? new WebSocket(url, ["sirocco.v1", `bearer.${this.token}`]) : new WebSocket(url);
  }

  async register(id: string, subscriber: string, query: object): Promise<string[]> {
    const path = `/v1/queries/${encodeURIComponent(id)}?subscriber=${encodeURIComponent(subscriber)}`;
    const answer = await this.#json(path, "PUT", query);
    return (answer as { warnings?: string[] }).warnings ?? [];
  }

  async remove(id: string): Promise<void> {
    await this.fetch(`/v1/queries/${encodeURIComponent(id)}`, { method: "DELETE" });
  }

  async queries(subscriber: string): Promise<Registered[]> {
    const whose = subscriber ? `&subscriber=${encodeURIComponent(subscriber)}` : "";
    const answer = await this.fetch(`/v1/queries?page_size=200${whose}`);
    return ((await answer.json()) as { queries: Registered[] }).queries;
  }

  async search(query: object): Promise<{ objects: Found[]; warnings: string[] }> {
    const answer = await this.#json("/v1/search?allow_partial=true", "POST", query, "application/json; objects=full");
    const { objects = [], warnings = [] } = answer as { objects?: Found[]; warnings?: string[] };
    return { objects, warnings };
  }

  explain(query: string | object, object: object): Promise<unknown> {
    return this.#json("/v1/explain", "POST", { query, object, search: false });
  }

  async publish(object: object): Promise<void> {
    await this.#json("/v1/objects", "POST", [object]);
  }

  async #json(path: string, method: string, body: unknown, accept = "application/json"): Promise<unknown> {
    const headers = { "Content-Type": "application/json", Accept: accept };
    return (await this.fetch(path, { method, headers, body: JSON.stringify(body) })).json();
  }
}
