// The client of Sirocco's HTTP gateway. Written by scripts/typescript_client.py from the gateway's
// OpenAPI document: do not edit.


export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  field?: string;
  retry_after_ms?: number;
}

export interface SpatialObject {
  id: string | number;
  lon: number;
  lat: number;
  ts?: number | string;
  text?: string;
  [member: string]: unknown;
}

export interface BadLine {
  line: number;
  field: string | null;
  detail: string;
}

export interface Published {
  acknowledged: number;
  position: string;
  errors: BadLine[];
  more_errors?: number;
}

export interface Query {
  id?: string;
  kind: "range" | "knn" | "terms" | "ranked";
  mode?: "continuous" | "snapshot";
  text?: string;
  region?: Record<string, unknown>;
  [member: string]: unknown;
}

export interface Registration {
  id: string;
  warnings: string[];
}

export interface RegisteredQuery {
  id: string;
  subscriber: string;
  revision: string;
  start_ms: number;
  query: Query;
}

export interface QueryPage {
  queries: RegisteredQuery[];
  next_page_token: string;
}

export interface Answer {
  query: string;
  objects?: (string | SpatialObject)[];
  distance_m?: number[];
  score?: number[];
  terms?: unknown[][];
  at?: number;
  missing_slots?: number[];
  warnings?: string[];
}

export interface FailedSearch {
  query: string;
  error: Problem;
}

export interface Notification {
  query: string;
  object?: SpatialObject;
  [member: string]: unknown;
}

/** An answer that is an error, with its problem document. */
export class GatewayError extends Error {
  override readonly name = "GatewayError";
  readonly code: string;
  readonly field: string;

  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    const message = problem.detail ?? problem.title ?? `status ${status}`;
    super(problem.field ? `${problem.field}: ${message}` : message);
    this.code = problem.code ?? "";
    this.field = problem.field ?? "";
  }
}

const JSON_TYPE = "application/json";

type Parameters = Record<string, string | number | boolean | undefined>;

/** A path with the parameters that have a value. */
function withParameters(path: string, parameters: Parameters): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/** Calls of one gateway. The token is kept in memory alone. */
export class GatewayClient {
  /**
   * @param base Address of the gateway, without a slash at its end; empty: that of the page.
   * @param token What a cluster with tokens asks for.
   */
  constructor(
    readonly base = "",
    public token = "",
  ) {}

  /** @throws GatewayError The answer is an error. */
  async fetch(address: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.token) headers.set("Authorization", `Bearer ${this.token}`);
    const answer = await fetch(address, { ...init, headers, cache: "no-store" });
    if (answer.ok) return answer;
    let problem: Partial<Problem> = {};
    try {
      problem = (await answer.json()) as Partial<Problem>;
    } catch {
      // Of something before the gateway.
    }
    throw new GatewayError(answer.status, problem);
  }

  /**
   * Publishes the objects of a body, and answers when the log has them.
   *
   * Bad lines are reported in `errors`; all others are published. A body that is refused as a
   * whole publishes nothing.
   *
   * POST /v1/objects
   * @param parameters.map of a table: `lon=COLUMN,lat=COLUMN,text=A+B,ts=COLUMN`
   */
  async publish(body: SpatialObject[], parameters: { map?: string } = {}): Promise<Published> {
    return (await this.#json(withParameters("/v1/objects", parameters), "POST", body)) as Published;
  }

  /**
   * Returns a page of the registered queries, or of those of one subscriber.
   *
   * GET /v1/queries
   * @param parameters.subscriber who receives the notifications
   */
  async listQueries(parameters: { subscriber?: string; page_size?: number; page_token?: string } = {}): Promise<QueryPage> {
    return (await this.#json(withParameters("/v1/queries", parameters), "GET")) as QueryPage;
  }

  /**
   * Registers a query, or replaces the one of this id in one step.
   *
   * PUT /v1/queries/{id}
   * @param parameters.subscriber who receives the notifications
   * @param parameters.past also answer from stored objects of this age, as `2h`
   */
  async putQuery(id: string, body: Query, parameters: { subscriber?: string; past?: string } = {}): Promise<Registration> {
    return (await this.#json(withParameters(`/v1/queries/${encodeURIComponent(id)}`, parameters), "PUT", body)) as Registration;
  }

  /**
   * Returns a registered query.
   *
   * GET /v1/queries/{id}
   * @param parameters.subscriber who receives the notifications
   */
  async getQuery(id: string, parameters: { subscriber?: string } = {}): Promise<RegisteredQuery> {
    return (await this.#json(withParameters(`/v1/queries/${encodeURIComponent(id)}`, parameters), "GET")) as RegisteredQuery;
  }

  /**
   * Removes a query; its objects no longer match once this is answered.
   *
   * DELETE /v1/queries/{id}
   * @param parameters.subscriber who receives the notifications
   */
  async deleteQuery(id: string, parameters: { subscriber?: string } = {}): Promise<{ id: string }> {
    return (await this.#json(withParameters(`/v1/queries/${encodeURIComponent(id)}`, parameters), "DELETE")) as { id: string };
  }

  /**
   * Answers a query from what has arrived so far.
   *
   * POST /v1/search
   * @param parameters.position a publish's `position`: find at least its objects
   * @param parameters.now search as of this time, epoch ms
   * @param parameters.allow_partial also answer without parts of the cluster
   */
  async search(body: Query, parameters: { position?: string; now?: number; allow_partial?: boolean } = {}, accept = "application/json; objects=full"): Promise<Answer> {
    return (await this.#json(withParameters("/v1/search", parameters), "POST", body, accept)) as Answer;
  }

  /**
   * Answers a list of queries in its order; those without an answer have an `error`.
   *
   * Several searches share what one costs on its way. The bounds of an answer hold for all
   * together.
   *
   * POST /v1/searches
   * @param parameters.position a publish's `position`: find at least its objects
   * @param parameters.now search as of this time, epoch ms
   * @param parameters.allow_partial also answer without parts of the cluster
   */
  async searchMany(body: Query[], parameters: { position?: string; now?: number; allow_partial?: boolean } = {}, accept = "application/json; objects=full"): Promise<{ answers: (Answer | FailedSearch)[] }> {
    return (await this.#json(withParameters("/v1/searches", parameters), "POST", body, accept)) as { answers: (Answer | FailedSearch)[] };
  }

  /**
   * Explains a query as `sirocco explain --json` does, with an object also its match.
   *
   * The body is a query, or an object with `query` (a query, or the id of a registered one) and,
   * if wanted, `object`, `arrival`, `window` and `search` (false: count no recent matches).
   *
   * POST /v1/explain
   */
  async explain(body: Record<string, unknown>): Promise<Record<string, unknown>> {
    return (await this.#json("/v1/explain", "POST", body)) as Record<string, unknown>;
  }

  /**
   * Sends what the cluster does, about once a second: for the console, and for people.
   *
   * Events: `map` (leaves and owners, when they change), `state` (members, rates, loads of
   * leaves), `balance` (decisions), `objects` (a sample of those that have just arrived). A
   * client that reads slowly misses some. Forms may change from version to version.
   *
   * GET /v1/live
   */
  liveAddress(): string {
    return this.base + "/v1/live";
  }

  /**
   * Sends the notifications of a subscriber as server-sent events, from now on.
   *
   * The id of an event is where to resume; `Last-Event-ID`, which browsers send by themselves,
   * goes before `cursor`. A silent stream sends a comment every 15 seconds.
   *
   * GET /v1/subscribers/{name}/notifications
   * @param parameters.cursor an event's id: everything after it
   * @param parameters.from_earliest without a cursor: everything that is kept
   */
  notificationsAddress(name: string, parameters: { cursor?: string; from_earliest?: boolean } = {}): string {
    return this.base + withParameters(`/v1/subscribers/${encodeURIComponent(name)}/notifications`, parameters);
  }

  async #json(path: string, method: string, body?: unknown, accept = JSON_TYPE): Promise<unknown> {
    const headers: Record<string, string> = { Accept: accept };
    const init: RequestInit = { method, headers };
    if (body !== undefined) {
      headers["Content-Type"] = JSON_TYPE;
      init.body = JSON.stringify(body);
    }
    return (await this.fetch(this.base + path, init)).json();
  }
}
