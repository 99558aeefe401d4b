/** What the console asks the gateway, with the client that is generated from its description. */

import { GatewayClient, type Query, type RegisteredQuery, type SpatialObject } from "./gateway";

export { GatewayError as Problem, type Query, type RegisteredQuery as Registered } from "./gateway";

/** An object of an answer or a notification: its id is a string. */
export type Found = SpatialObject & { id: string; ts?: number };

// A page of queries; a subscriber of the console has few.
const PAGE_SIZE = 200;

export class Api extends GatewayClient {
  socket(path: string): WebSocket {
    const url = new URL(path, location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    return this.token ? new WebSocket(url, ["sirocco.v1", `bearer.${this.token}`]) : new WebSocket(url);
  }

  async register(id: string, subscriber: string, query: Query): Promise<string[]> {
    return (await this.putQuery(id, query, { subscriber })).warnings;
  }

  async queries(subscriber: string): Promise<RegisteredQuery[]> {
    return (await this.listQueries({ page_size: PAGE_SIZE, subscriber: subscriber || undefined })).queries;
  }

  async found(query: Query): Promise<{ objects: Found[]; warnings: string[] }> {
    const { objects = [], warnings = [] } = await this.search(query, { allow_partial: true });
    return { objects: objects as Found[], warnings };
  }

  why(query: string | object, object: object): Promise<Record<string, unknown>> {
    return this.explain({ query, object, search: false });
  }
}
