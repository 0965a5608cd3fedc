import { isJsonObject } from "../base/json.ts";
import { displayNameOf, type RunnableServer } from "../manifest/manifest.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import { Method } from "../protocol/legacy.ts";
import type { ClientDeclaration } from "../upstream/profile.ts";
import { OwnRequest } from "./own-request.ts";

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
 * A form that the hub itself, or one of its plugins, shows to a client. The message of a plugin's form begins with the
 * name of the server that it is about.
 */
export class Elicitation extends OwnRequest<ElicitationResult> {
  /** @param message `ownMessage`: the message of the form is complete */
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
