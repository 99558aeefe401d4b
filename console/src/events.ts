/** Streams that resume by themselves: server-sent events over fetch, and WebSockets of notifications. */

import type { Api } from "./api";

/** Reads the text of a stream of events, in pieces of any size. */
export class EventReader {
  #rest = "";
  #name = "message";
  #data: string[] = [];

  /** Hands out the events that end within the next piece. */
  *read(piece: string): Generator<{ name: string; data: string }> {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.#data.length) yield { name: this.#name, data: this.#data.join("\n") };
        this.#name = "message";
        this.#data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.#name = value;
      else if (field === "data") this.#data.push(value);
    }
  }
}

/** Pauses between tries: they grow to ten seconds, and vary so that many consoles do not come at once. */
export function pause_ms(failures: number, random: number): number {
  return Math.min(10_000, 500 * 2 ** Math.min(failures, 6)) * (0.5 + random / 2);
}

/** Browsers let the timers of a hidden page run once a minute; those of a sleeping machine stand still. */
const SLEPT_MS_MIN = 90_000;

/** Calls back when the clock has jumped since the last look: the machine, or the page, has slept. */
export class SleepWatch {
  constructor(
    private readonly onWake: () => void,
    private last_ms: number,
  ) {}

  look(now_ms: number): void {
    const slept = now_ms - this.last_ms > SLEPT_MS_MIN;
    this.last_ms = now_ms;
    if (slept) this.onWake();
  }
}

/** A gateway sends a comment at least every 15 seconds. */
const SILENT_MS_MAX = 40_000;

export type Health = "connecting" | "open" | "lost" | "refused";

/** Follows `/v1/live` until it is stopped. */
export class LiveStream {
  #stopping: AbortController | null = null;

  constructor(
    private readonly api: Api,
    private readonly onEvent: (name: string, data: unknown) => void,
    private readonly onHealth: (health: Health, why: string) => void,
  ) {}

  start(): void {
    if (this.#stopping) return;
    this.#stopping = new AbortController();
    void this.#follow(this.#stopping.signal);
  }

  stop(): void {
    this.#stopping?.abort();
    this.#stopping = null;
  }

  async #follow(stopped: AbortSignal): Promise<void> {
    for (let failures = 0; !stopped.aborted; failures++) {
      let why = "the gateway does not answer";
      try {
        await this.#once(stopped, () => {
          failures = 0;
          this.onHealth("open", "");
        });
        why = "the stream has ended";
      } catch (error) {
        if (stopped.aborted) return;
        if (error instanceof Error && error.name === "GatewayError") why = error.message;
      }
      if (stopped.aborted) return;
      this.onHealth("lost", why);
      await sleep(pause_ms(failures, Math.random()), stopped);
    }
  }

  async #once(stopped: AbortSignal, onOpen: () => void): Promise<void> {
    const silent = new AbortController();
    let timer = window.setTimeout(() => silent.abort(), SILENT_MS_MAX);
    try {
      const answer = await this.api.fetch(this.api.liveAddress(), { signal: AbortSignal.any([stopped, silent.signal]) });
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
      onOpen();
      const events = new EventReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        window.clearTimeout(timer);
        timer = window.setTimeout(() => silent.abort(), SILENT_MS_MAX);
        for (const { name, data } of events.read(value)) this.onEvent(name, JSON.parse(data));
      }
    } finally {
      window.clearTimeout(timer);
    }
  }
}

const sleep = (ms: number, stopped: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = window.setTimeout(resolve, ms);
    stopped.addEventListener("abort", () => {
      window.clearTimeout(timer);
      resolve();
    });
  });

/** What a WebSocket of notifications sends. */
interface Message {
  id?: string;
  data?: unknown;
  problem?: { detail?: string; title?: string };
}

/** After so many refusals in a row the reason is asked for: a browser does not tell it. */
const ASK_AFTER = 2;

/**
 * Follows a subscriber's notifications: each once, over breaks too, since a new connection begins at
 * the place of the last event.
 */
export class Notifications {
  #socket: WebSocket | null = null;
  #timer = 0;
  #failures = 0;
  #isStopped = false;
  cursor = "";

  constructor(
    private readonly api: Api,
    readonly subscriber: string,
    private readonly onNotification: (data: unknown) => void,
    private readonly onHealth: (health: Health, why: string) => void,
  ) {
    this.#connect();
  }

  stop(): void {
    this.#isStopped = true;
    window.clearTimeout(this.#timer);
    this.#socket?.close();
  }

  /** Tries again now, if there is no connection. */
  wake(): void {
    if (this.#socket?.readyState !== WebSocket.OPEN) this.restart();
  }

  /**
   * Connects anew at the place of the last event. After a sleep a connection may look open though the
   * other side has long gone; what the former one still brings is dropped.
   */
  restart(): void {
    if (this.#isStopped) return;
    window.clearTimeout(this.#timer);
    this.#socket?.close();
    this.#connect();
  }

  get #path(): string {
    return this.api.notificationsAddress(this.subscriber, { cursor: this.cursor || undefined });
  }

  #connect(): void {
    const socket = (this.#socket = this.api.socket(this.#path));
    socket.onopen = () => this.onHealth("connecting", "");
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket || this.#isStopped) return;
      const message = JSON.parse(data as string) as Message;
      if (message.id !== undefined) {
        this.#failures = 0;
        this.cursor = message.id;
        this.onHealth("open", "");
      }
      if (message.data !== undefined) this.onNotification(message.data);
      if (message.problem) this.onHealth("lost", message.problem.detail ?? message.problem.title ?? "");
    };
    socket.onclose = () => {
      if (socket !== this.#socket || this.#isStopped) return;
      this.onHealth("lost", "the connection was lost");
      this.#failures += 1;
      if (this.#failures % ASK_AFTER === 0) void this.#ask();
      this.#timer = window.setTimeout(() => this.#connect(), pause_ms(this.#failures, Math.random()));
    };
  }

  /** Asks over HTTP why the stream is refused; a place that is no longer kept is given up. */
  async #ask(): Promise<void> {
    const asking = new AbortController();
    try {
      await this.api.fetch(this.#path, { signal: asking.signal });
    } catch (error) {
      if (!(error instanceof Error) || error.name !== "GatewayError") return;
      const { code, message } = error as Error & { code: string };
      this.onHealth("refused", message);
      if (this.cursor && (code === "OUT_OF_RANGE" || code === "INVALID_ARGUMENT")) {
        this.cursor = "";
        this.onHealth("refused", `some notifications are no longer kept: ${message}`);
      }
    } finally {
      asking.abort();
    }
  }
}
