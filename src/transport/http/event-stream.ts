import type { Buffer } from "node:buffer";
import type { HubError } from "../../base/errors.ts";
import type { RequestEvents, HttpRequest } from "./delivery.ts";
import { EventParser, type EventParserEvents } from "./event-parser.ts";
import { isEventStream } from "./excerpt.ts";
import type { ResponseHead } from "../http-client/head.ts";
import type { HttpRequester } from "./request.ts";

/** How a feed has ended. */
export type EventStreamEnd =
  /** It was there. */
  | { readonly kind: "dropped"; readonly retry: number | undefined }
  /** The server has none. */
  | { readonly kind: "refused"; readonly status: number }
  | { readonly kind: "failed"; readonly cause: HubError };

/** Who reads a feed. */
export interface EventStreamSink extends EventParserEvents {
  opened?(): void;
  ended(end: EventStreamEnd): void;
}

/** One GET whose answer is a stream of events. */
export class EventStreamRequest implements RequestEvents {
  readonly #sink: EventStreamSink;
  readonly #delivery: HttpRequest;
  readonly #reader: EventParser;
  #at: "asking" | "open" | "over" = "asking";

  /** @param lastId the id of the last event that was seen, to go on from there */
  constructor(
    passage: HttpRequester,
    fields: string,
    lastId: string | undefined,
    sink: EventStreamSink,
  ) {
    this.#sink = sink;
    this.#reader = new EventParser(passage.target.maxMessage, sink);
    this.#reader.lastId = lastId;
    const last = lastId === undefined ? "" : `Last-Event-ID: ${lastId}\r\n`;
    const letter = {
      method: "GET",
      fields: `Accept: text/event-stream\r\n${fields}${last}`,
      body: undefined,
    } as const;
    this.#delivery = passage.send(letter, this);
  }

  /** The id of the last event that named one. */
  get lastId(): string | undefined {
    return this.#reader.lastId;
  }

  drop(): void {
    this.#at = "over";
    this.#delivery.drop();
  }

  head(head: ResponseHead): void {
    if (head.status === 200 && isEventStream(head)) {
      this.#at = "open";
      this.#sink.opened?.();
      return;
    }
    this.#delivery.drop();
    this.#end({ kind: "refused", status: head.status });
  }

  body(bytes: Buffer): void {
    if (this.#at === "open") this.#reader.push(bytes);
  }

  end(): void {
    this.#end({ kind: "dropped", retry: this.#reader.retry });
  }

  fail(cause: HubError): void {
    if (this.#at === "open") this.end();
    else this.#end({ kind: "failed", cause });
  }

  #end(end: EventStreamEnd): void {
    if (this.#at === "over") return;
    this.#at = "over";
    this.#sink.ended(end);
  }
}
