import { utf8 } from "../base/bytes.ts";
import { type Deferred, deferred } from "../base/deferred.ts";
import { HubError } from "../base/errors.ts";
import { isJsonObject, parseRange } from "../base/json.ts";
import type { Response } from "../jsonrpc/message.ts";
import { displayNameOf, type RunnableServer } from "../manifest/manifest.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import { Method } from "../protocol/legacy.ts";
import type { CancelReason } from "../protocol/notifications.ts";
import type { ClientDeclaration, ServerRequest, ServerRequestTarget } from "../upstream/profile.ts";

/** A form for the person at a client (MCP, elicitation, form mode). `schema` is its `requestedSchema`. */
export interface ElicitationForm {
  readonly message: string;
  readonly schema: object;
}

/** What the person did with the form. `content` has the values that were filled in. */
export type ElicitationResult =
  | { readonly action: "accept"; readonly content: Readonly<Record<string, unknown>> }
  | { readonly action: "decline" | "cancel" };

/** Whether a client has declared that it shows forms. */
export function canElicit({ declaredCapabilities }: ClientDeclaration): boolean {
  return readCapabilities(declaredCapabilities).elicitation?.form !== undefined;
}

/**
 * A form that the hub itself, or one of its plugins, shows to a client, in the way of a server's request. The message of
 * a plugin's form begins with the name of the server that it is about.
 */
export class Elicitation implements ServerRequest {
  readonly server: string;
  readonly method = Method.elicitationCreate;
  /**
   * The client's answer. Rejects with `notAsked` if the client could not be asked, with `invalidParams` if its answer
   * is none.
   */
  readonly result: Promise<ElicitationResult>;
  readonly #messagePrefix: string;
  readonly #form: ElicitationForm;
  readonly #deferred: Deferred<ElicitationResult> = deferred();
  #withdraw: (reason: CancelReason) => void = () => {};

  /** @param message `ownMessage`: the message of the form is complete */
  constructor(server: RunnableServer, form: ElicitationForm, message?: "ownMessage") {
    this.server = server.name;
    this.#messagePrefix = message === "ownMessage" ? "" : `[${displayNameOf(server)}] `;
    this.#form = form;
    this.result = this.#deferred.promise;
    // Prevents an unhandled rejection if nobody waits for the result.
    this.result.catch(() => {});
  }

  send(target: ServerRequestTarget): void {
    this.#withdraw = target.sendServerRequest(this);
  }

  /** Withdraws the form at the client; the result rejects with `error`. Does nothing if it is answered. */
  withdraw(reason: CancelReason, error: HubError): void {
    this.#withdraw(reason);
    this.fail(error);
  }

  params(): readonly Uint8Array[] {
    const { message, schema: requestedSchema } = this.#form;
    return [utf8(JSON.stringify({ message: this.#messagePrefix + message, requestedSchema }))];
  }

  answer(outcome: Response["outcome"], body: Uint8Array): void {
    const value = parseRange(body, { start: 0, end: body.length });
    if (outcome === "error") {
      const text =
        isJsonObject(value) && typeof value["message"] === "string" ? value["message"] : "";
      const message = `The client did not show the form to the person: ${text}`;
      this.fail(new HubError("notAsked", message, { server: this.server }));
      return;
    }
    const result = readElicitationResult(value);
    if (result === undefined)
      this.fail(new HubError("invalidParams", "The client's answer to the form is invalid."));
    else this.#deferred.resolve(result);
  }

  fail(error: HubError): void {
    this.#deferred.reject(error);
  }

  /** Does nothing: the form has no progress token. */
  progress(): void {}
}

function readElicitationResult(value: unknown): ElicitationResult | undefined {
  if (!isJsonObject(value)) return undefined;
  const { action, content = {} } = value;
  if (action === "decline" || action === "cancel") return { action };
  return action === "accept" && isJsonObject(content) ? { action, content } : undefined;
}
