import { utf8 } from "../base/bytes.ts";
import { Method } from "../protocol/legacy.ts";
import { buildNotification, type Response } from "../jsonrpc/message.ts";
import { lastMember, scanObject, readString } from "../base/json.ts";
import type { Ask, Question } from "./ask.ts";
import type { Attendee, Audience, Occasion } from "./audience.ts";
import { onlyOne } from "./audience.ts";

export interface InvitationParts {
  readonly server: string;
  readonly audience: Audience;
  /** The request that waits for the server, if all that wait are of one client. */
  occasion(): Occasion | undefined;
  /** The user has declined. */
  declined(): void;
}

/** Asks the user of a client, by URL elicitation, to open the login page of a server. */
export class Invitation {
  readonly #parts: InvitationParts;
  #url: string | undefined;
  #withdraw: (() => void) | undefined;
  /** The client whose user has agreed to open the page, and the `elicitationId`. */
  #guest: { readonly attendee: Attendee; readonly id: string } | undefined;

  constructor(parts: InvitationParts) {
    this.#parts = parts;
  }

  /** Sends the elicitation, if it is clear which client it concerns and clients support it. */
  give(url: string): void {
    if (url === this.#url) return;
    this.end();
    this.#url = url;
    const { audience } = this.#parts;
    if (audience.capabilities.elicitation?.url === undefined) return;
    const occasion = this.#parts.occasion();
    const only = onlyOne(audience);
    const way = occasion ?? only;
    if (way !== undefined) this.#ask(way, occasion?.attendee ?? only, url);
  }

  /** The login is over: cancels the elicitation, or reports it complete. */
  end(): void {
    this.#url = undefined;
    this.#withdraw?.();
    this.#withdraw = undefined;
    const { server } = this.#parts;
    if (this.#guest === undefined) return;
    const { attendee, id: elicitationId } = this.#guest;
    attendee.tell(server, buildNotification(Method.elicited, { elicitationId }));
    this.#guest = undefined;
  }

  #ask(way: Ask, attendee: Attendee | undefined, url: string): void {
    const { server } = this.#parts;
    const id = crypto.randomUUID();
    const message = `[${server}] wants an authorization: open this page to let toolmux in.`;
    const asked = JSON.stringify({ mode: "url", message, url, elicitationId: id }).slice(1);
    let isOver = false;
    const question: Question = {
      server,
      method: Method.elicit,
      params: (token) => [utf8(`{"_meta":{"progressToken":`), token, utf8(`},${asked}`)],
      answer: (outcome: Response["outcome"], body: Uint8Array) => {
        if (isOver) return undefined;
        isOver = true;
        this.#withdraw = undefined;
        if (outcome === "result") this.#answered(body, attendee, id);
        return undefined;
      },
      // The user may still open the page in another way.
      fail: () => {
        isOver = true;
        this.#withdraw = undefined;
      },
      progress: () => {},
    };
    const recall = way.ask(question);
    if (!isOver) this.#withdraw = () => recall("The authorization is over.");
  }

  #answered(body: Uint8Array, attendee: Attendee | undefined, id: string): void {
    const action = readString(body, lastMember(scanObject(body, 0)?.items ?? [], "action"));
    if (action === "decline") this.#parts.declined();
    else if (action === "accept" && attendee !== undefined) this.#guest = { attendee, id };
  }
}
