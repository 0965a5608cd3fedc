import { IdTable } from "../../base/id-table.ts";
import { HubError } from "../../base/errors.ts";
import { VERSION } from "../../base/version.ts";
import { Redactor } from "../redact.ts";
import type { AuthChallenge } from "./credentials.ts";
import {
  type RequestEvents,
  HttpRequest,
  type RequestTemplate,
  type HttpRequestContext,
} from "./delivery.ts";
import {
  HttpConnectionPool,
  type PooledRequest,
  type RequestTarget,
  requestTargetOf,
  type RequestHandle,
} from "../http-client/pool.ts";
import type { ResponseReceiver } from "../http-client/connection.ts";
import { openSocket } from "../http-client/connect.ts";
import type { HttpTarget } from "./target.ts";

/** Of these the link alone decides, whatever the manifest says. */
const OWN =
  /^(?:host|content-length|content-type|transfer-encoding|connection|accept|accept-encoding|mcp-session-id|mcp-protocol-version|last-event-id)$/i;

/** What may stand in a header: nothing that begins another one. */
const FIELD = /^[\t\x20-\x7e\x80-\xff]*$/;

/** What a request bears that was not made. */
const NOTHING = "none";

/** So many of the values that were borne last are not shown. */
const MOST_BORNE = 8;

/** The way of one link's requests to its server: where they go by now, what all of them bear, and what the server wants of them. */
export class HttpRequester implements HttpRequestContext {
  readonly target: HttpTarget;
  /** Takes out what the manifest keeps secret, and the credentials that were borne last. */
  redactor: Redactor;
  /** Where the server is: it may have said that it is elsewhere. */
  place: RequestTarget;
  readonly home: RequestTarget;
  /** What was sent that has been let in. */
  hasEntered = false;
  readonly #abort = new AbortController();
  readonly #challenged: (challenge: AuthChallenge) => void;
  readonly #fields: string;
  readonly #isExplicit: boolean;
  readonly #lanes = new Map<string, HttpConnectionPool>();
  readonly #deliveries = new IdTable<HttpRequest>();
  #isPaused = false;
  #borne: readonly string[] = [];
  /** What they bore last. */
  #worn = "";
  #renewal: Promise<boolean> | undefined;
  /** What the requests bore that the owner was told of. */
  #refused: string | undefined;

  constructor(target: HttpTarget, challenged: (challenge: AuthChallenge) => void) {
    this.target = target;
    this.redactor = new Redactor(target.secrets);
    this.home = requestTargetOf(target.url);
    this.place = this.home;
    this.#challenged = challenged;
    const headers = Object.entries(target.headers).filter(([name]) => !OWN.test(name));
    this.#isExplicit = headers.some(([name]) => /^authorization$/i.test(name));
    const given = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
    const agent = headers.some(([name]) => /^user-agent$/i.test(name));
    this.#fields = `${agent ? "" : `User-Agent: toolmux/${VERSION}\r\n`}Accept-Encoding: identity\r\n${given}`;
  }

  get server(): string {
    return this.target.server;
  }

  isBound(worn: string): boolean {
    return worn !== "" || Object.keys(this.target.headers).length > 0;
  }

  isConfided({ fields }: RequestTemplate, worn: string): boolean {
    return this.isBound(worn) || /^mcp-session-id:/im.test(fields);
  }

  send(letter: RequestTemplate, customer: RequestEvents): HttpRequest {
    const delivery = new HttpRequest(
      this,
      letter,
      customer,
      () => void this.#deliveries.remove(place),
    );
    const place = this.#deliveries.add(delivery);
    if (this.#isPaused) delivery.pause();
    delivery.start();
    return delivery;
  }

  bear(): string | Promise<string> {
    const worn = this.target.credentials.bear(this.#abort.signal);
    if (!(worn instanceof Promise)) return this.#write(worn);
    return worn.then(
      (them) => this.#write(them),
      (error: unknown) => {
        // Nothing is asked of the server before there are some.
        const isWanting = error instanceof HubError && error.code === "unauthorized";
        if (isWanting) this.challenged({ status: 401, header: undefined }, NOTHING);
        throw error;
      },
    );
  }

  carry(
    letter: RequestTemplate,
    place: RequestTarget,
    worn: string,
    receiver: ResponseReceiver,
  ): RequestHandle {
    const { origin } = place.url;
    let lanes = this.#lanes.get(origin);
    if (lanes === undefined) {
      lanes = new HttpConnectionPool((signal) => openSocket(place.url, this.target, signal));
      this.#lanes.set(origin, lanes);
    }
    const fields = `${this.#fields}${worn}${letter.fields}`;
    const order: PooledRequest = { method: letter.method, place, fields, body: letter.body };
    return lanes.send(order, receiver);
  }

  async renew(challenge: AuthChallenge, worn: string): Promise<boolean> {
    // Another request may have had them renewed meanwhile, or be about to.
    if ((await this.bear()) !== worn) return true;
    const { credentials } = this.target;
    this.#renewal ??= credentials.renew(challenge, this.#abort.signal).finally(() => {
      this.#renewal = undefined;
    });
    return this.#renewal;
  }

  challenged(challenge: AuthChallenge, worn: string): void {
    if (this.#refused === worn) return;
    this.#refused = worn;
    this.#challenged(challenge);
  }

  error(code: HubError["code"], text: string): HubError {
    const { server } = this;
    return new HubError(code, `Server "${server}": ${this.redactor.apply(text)}`, { server });
  }

  pause(): void {
    this.#isPaused = true;
    for (const delivery of this.#deliveries.values()) delivery.pause();
  }

  resume(): void {
    this.#isPaused = false;
    for (const delivery of this.#deliveries.values()) delivery.resume();
  }

  /** Gives up all that is under way; nobody is told. */
  close(): void {
    this.#abort.abort(this.error("serverStopped", "its link was closed."));
    for (const delivery of this.#deliveries.values()) delivery.drop();
    for (const lanes of this.#lanes.values()) lanes.close();
    this.#lanes.clear();
  }

  /** What stands behind the scheme is as secret as the whole. The one before may still come back. */
  #hide(worn: readonly string[]): void {
    const values = worn.flatMap((value) => [value, value.replace(/^\S+ +/, "")]);
    this.#borne = [...values, ...this.#borne].slice(0, MOST_BORNE);
    this.redactor = new Redactor([...this.#borne, ...this.target.secrets]);
  }

  /** What the manifest says goes before what was got. */
  #write(worn: Readonly<Record<string, string>>): string {
    let fields = "";
    for (const name in worn) {
      if (!FIELD.test(worn[name] ?? "")) {
        throw this.error(
          "unauthorized",
          `what it wants to see (${name}) cannot stand in a header.`,
        );
      }
      if (!this.#isExplicit || !/^authorization$/i.test(name)) {
        fields += `${name}: ${worn[name]}\r\n`;
      }
    }
    if (fields !== this.#worn) {
      this.#worn = fields;
      this.#hide(Object.values(worn));
    }
    return fields;
  }
}
