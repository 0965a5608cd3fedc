import type { Clock } from "../../base/clock.ts";
import type { Bus, BusHeaders, BusMessage } from "../../fleet/bus.ts";
import { Header } from "../../fleet/frames.ts";
import { CONTROL_SUFFIX, inboxOfHub } from "../../fleet/subjects.ts";

/** A request whose sender controls the answer. */
export interface Controlled {
  /** The subject of the answer. Messages to `{reply}.ctl` control it. */
  readonly reply: string;
  onControl(message: BusMessage): void;
}

/** The requests of one inbox that is for this hub alone. */
interface Inbox {
  /** By the last token of their subjects. */
  readonly requests: Map<string, Controlled>;
  readonly unsubscribe: () => void;
  isUsed: boolean;
}

/** Maximum number of inboxes. Those without a request are given up before: it is over the maximum number of requests. */
const MAX_INBOXES = 12_000;
/** Time after which inboxes that were not used meanwhile are given up, in ms. */
const KEPT = 60_000;
const NO_BYTES = new Uint8Array();
const END: BusHeaders = [[Header.frame, "end"]];

/**
 * The subscriptions to the subjects on which answers are controlled. Hubs have an inbox for each hub that they send
 * requests to: it has one subscription, which is kept for their next requests. Of other peers each request has one.
 */
export class ControlSubjects {
  readonly #bus: Bus;
  readonly #clock: Clock;
  readonly #inboxes = new Map<string, Inbox>();
  /** The functions that end the subscriptions of single requests. */
  readonly #single = new Map<Controlled, () => void>();
  #cancelTimer: (() => void) | undefined;

  constructor(bus: Bus, clock: Clock) {
    this.#bus = bus;
    this.#clock = clock;
  }

  /** Number of inboxes with a subscription. */
  get inboxes(): number {
    return this.#inboxes.size;
  }

  /** @returns false if an open request has the same subject: which of them a message is for could not be told */
  add(request: Controlled): boolean {
    const { reply } = request;
    const name = inboxOfHub(reply);
    if (name === undefined) {
      const end = this.#bus.subscribe(reply + CONTROL_SUFFIX, (message) =>
        request.onControl(message),
      );
      this.#single.set(request, end);
      return true;
    }
    const inbox = this.#inboxes.get(name) ?? this.#open(name);
    const token = reply.slice(name.length + 1);
    if (inbox.requests.has(token)) return false;
    inbox.requests.set(token, request);
    inbox.isUsed = true;
    return true;
  }

  remove(request: Controlled): void {
    const end = this.#single.get(request);
    if (end !== undefined) {
      this.#single.delete(request);
      end();
      return;
    }
    const name = inboxOfHub(request.reply) ?? "";
    this.#inboxes.get(name)?.requests.delete(request.reply.slice(name.length + 1));
  }

  close(): void {
    this.#cancelTimer?.();
    for (const { unsubscribe } of this.#inboxes.values()) unsubscribe();
    for (const end of this.#single.values()) end();
    this.#inboxes.clear();
    this.#single.clear();
  }

  #open(name: string): Inbox {
    if (this.#inboxes.size >= MAX_INBOXES) this.#giveUp(false);
    const requests = new Map<string, Controlled>();
    const unsubscribe = this.#bus.subscribe(`${name}.*${CONTROL_SUFFIX}`, (message) => {
      const token = message.subject.slice(name.length + 1, -CONTROL_SUFFIX.length);
      const request = requests.get(token);
      if (request !== undefined) request.onControl(message);
      // Without this subscription, NATS would tell who asks that the request is not known. The answer stays in the
      // inbox of whoever may write here.
      else if (message.reply.startsWith(`${name}.`) && message.header(Header.frame) === "ka")
        this.#bus.publish(message.reply, NO_BYTES, { headers: END });
    });
    const inbox: Inbox = { requests, unsubscribe, isUsed: true };
    this.#inboxes.set(name, inbox);
    this.#cancelTimer ??= this.#clock.after(KEPT, this.#sweep);
    return inbox;
  }

  readonly #sweep = (): void => {
    this.#giveUp(true);
    this.#cancelTimer = this.#inboxes.size > 0 ? this.#clock.after(KEPT, this.#sweep) : undefined;
  };

  /** Gives up the inboxes without requests. @param keepsUsed whether those stay that had one since this was last called */
  #giveUp(keepsUsed: boolean): void {
    for (const [name, inbox] of this.#inboxes) {
      if (inbox.requests.size > 0 || (keepsUsed && inbox.isUsed)) inbox.isUsed = false;
      else {
        this.#inboxes.delete(name);
        inbox.unsubscribe();
      }
    }
  }
}
