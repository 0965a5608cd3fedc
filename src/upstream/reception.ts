import type { HubError } from "../base/errors.ts";
import type { LogLevel } from "../base/events.ts";
import type { Message, Request, Response } from "../jsonrpc/message.ts";
import type { SentRequest } from "../transport/transport.ts";
import { IncomingNotifications, type IncomingNotificationsOptions } from "./news.ts";

/** Whom it may be for that comes in of a server. */
export interface IncomingMessagesOptions extends IncomingNotificationsOptions {
  /** What the hub makes of messages that are of no use. */
  log(level: LogLevel, text: string): void;
}

/** Takes in what a server sends: answers go to those who wait for them, all else to those whom it concerns. */
export class IncomingMessages {
  /** Messages that ever came, and refusals of pings. */
  heard = 0;
  readonly #parts: IncomingMessagesOptions;
  readonly #news: IncomingNotifications;
  readonly #complaints = new Set<string>();

  constructor(parts: IncomingMessagesOptions) {
    this.#parts = parts;
    this.#news = new IncomingNotifications(parts);
  }

  /** @param exchange the request on whose stream it came, where the link can tell */
  take(frame: Message, exchange: SentRequest | undefined): void {
    this.heard++;
    switch (frame.kind) {
      case "response":
        this.#settle(frame);
        return;
      case "notification":
        this.#news.notified(frame, exchange);
        return;
      case "request":
        if (this.#parts.dialect()?.era !== "modern") this.#news.asked(frame, exchange);
        else this.#refuse(frame);
        return;
      case "batch":
        if (this.#parts.dialect()?.hasBatches !== true) {
          this.complain("A batch was dropped: this revision has none.");
          return;
        }
        for (const item of frame.items) this.take(item, exchange);
        return;
      case "invalid":
        this.complain(`A message was dropped: ${frame.reason}.`);
    }
  }

  /** A message was too long to be kept. */
  lose(head: Buffer, tail: Buffer, size: number): void {
    this.heard++;
    const text = this.#parts.pending.lose(head, tail, size);
    if (text !== undefined) this.#parts.log("warn", text);
  }

  /** What was asked for a sign of life was turned away: only who lives can do that. */
  readonly turnedAway = ({ code }: HubError): void => {
    if (code === "serverRefused" || code === "serverFailed") this.heard++;
  };

  /** For a while nothing was heard of changes of these kinds. */
  missed(...[kinds]: Parameters<IncomingNotifications["missed"]>): void {
    this.#news.missed(kinds);
  }

  /** Said once: who does it once does it often. */
  complain(text: string): void {
    if (this.#complaints.has(text)) return;
    this.#complaints.add(text);
    this.#parts.log("warn", text);
  }

  /** Servers of the modern era send no requests (2026-07-28); one that does must not wait for an answer. */
  #refuse({ id, method }: Request): void {
    this.#parts.voice.refuse(id, method);
    this.complain("A request was refused: servers of its era send none.");
  }

  #settle(response: Response): void {
    const { pending, jobs, voice } = this.#parts;
    const record = response.id === undefined ? undefined : pending.take(response.id);
    if (record !== undefined) {
      voice.settled(record);
      record.onResponse(response);
      return;
    }
    if (response.id !== undefined) pending.late(response.id);
    jobs.onLateResponse(response, this.#parts.dialect()?.era ?? "legacy");
    // An answer after a cancel is usual; one that nobody asked for is the server's mistake.
    this.#parts.log("debug", "An answer that nobody waits for was dropped.");
  }
}
