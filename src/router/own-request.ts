import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { isJsonObject, parseRange } from "../base/json.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import type { ServerRequest, ServerRequestTarget } from "../upstream/profile.ts";

export interface OwnRequestOptions<Result> {
  /** The server of the call during which the request is sent. */
  readonly server: string;
  readonly method: ServerRequest["method"];
  readonly params: object;
  /** Reads the client's answer; undefined if it is invalid. */
  readonly read: (value: unknown) => Result | undefined;
  /** The start of the error text if the client answers with an error, such as `The client did not show the form …`. */
  readonly refusedText: string;
  readonly invalidText: string;
}

/** A request that the hub itself or one of its plugins sends to a client, in the same way as a server's request. */
export class OwnRequest<Result> implements ServerRequest {
  readonly server: string;
  readonly method: ServerRequest["method"];
  /**
   * The client's answer. Rejects with `notAsked` if the client could not be asked, and with `invalidParams` if its
   * answer is not valid.
   */
  readonly result: Promise<Result>;
  readonly #options: OwnRequestOptions<Result>;
  readonly #params: Uint8Array;
  readonly #deferred: PromiseWithResolvers<Result> = Promise.withResolvers<Result>();
  #withdraw: (reason: CancelReason) => void = () => {};

  /** @throws {TypeError} if the params are not JSON */
  constructor(options: OwnRequestOptions<Result>) {
    this.server = options.server;
    this.method = options.method;
    this.#options = options;
    this.#params = utf8(JSON.stringify(options.params));
    this.result = this.#deferred.promise;
    // Prevents an unhandled rejection if nobody waits for the result.
    this.result.catch(() => {});
  }

  send(target: ServerRequestTarget): void {
    this.#withdraw = target.sendServerRequest(this);
  }

  /** Cancels the request at the client; `result` rejects with `error`. Does nothing if the client has answered. */
  withdraw(reason: CancelReason, error: HubError): void {
    this.#withdraw(reason);
    this.fail(error);
  }

  params(): readonly Uint8Array[] {
    return [this.#params];
  }

  answer(outcome: Response["outcome"], body: Uint8Array): void {
    const { server, refusedText, invalidText, read } = this.#options;
    let value: unknown;
    try {
      value = parseRange(body, { start: 0, end: body.length });
    } catch {
      // Bodies are relayed unread, so a client may have sent what is not JSON.
      value = undefined;
    }
    if (outcome === "error") {
      const text =
        isJsonObject(value) && typeof value["message"] === "string" ? value["message"] : "";
      this.fail(new HubError("notAsked", `${refusedText}: ${text}`, { server }));
      return;
    }
    const result = value === undefined ? undefined : read(value);
    if (result === undefined) this.fail(new HubError("invalidParams", invalidText));
    else this.#deferred.resolve(result);
  }

  fail(error: HubError): void {
    this.#deferred.reject(error);
  }

  /** Does nothing: the request has no progress token. */
  progress(): void {}
}
