import { isJsonObject } from "../base/json.ts";
import { displayNameOf, type RunnableServer } from "../manifest/manifest.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import { Method } from "../protocol/legacy.ts";
import type { ClientDeclaration } from "../upstream/profile.ts";
import { OwnRequest } from "./own-request.ts";

/** A form that a client shows to its user (MCP, elicitation, form mode). `schema` is sent as `requestedSchema`. */
export interface ElicitationForm {
  readonly message: string;
  readonly schema: object;
}

/** The action that the user has taken on the form. `content`: the values that were filled in. */
export type ElicitationResult =
  | { readonly action: "accept"; readonly content: Readonly<Record<string, unknown>> }
  | { readonly action: "decline" | "cancel" };

/** Whether a client has declared that it can show forms. */
export function canElicit({ declaredCapabilities }: ClientDeclaration): boolean {
  return readCapabilities(declaredCapabilities).elicitation?.form !== undefined;
}

/**
 * A form that the hub itself or one of its plugins sends to a client. The message of a plugin's form begins with the
 * name of the server that the form is about.
 */
export class Elicitation extends OwnRequest<ElicitationResult> {
  /** @param message `ownMessage`: the form comes from the hub itself, so the server's name is not added */
  constructor(server: RunnableServer, form: ElicitationForm, message?: "ownMessage") {
    const prefix = message === "ownMessage" ? "" : `[${displayNameOf(server)}] `;
    super({
      server: server.name,
      method: Method.elicitationCreate,
      params: { message: prefix + form.message, requestedSchema: form.schema },
      read: readElicitationResult,
      refusedText: "The client did not show the form to the person",
      invalidText: "The client's answer to the form is invalid.",
    });
  }
}

function readElicitationResult(value: unknown): ElicitationResult | undefined {
  if (!isJsonObject(value)) return undefined;
  const { action, content = {} } = value;
  if (action === "decline" || action === "cancel") return { action };
  return action === "accept" && isJsonObject(content) ? { action, content } : undefined;
}
