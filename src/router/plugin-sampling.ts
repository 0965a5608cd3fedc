import { isJsonObject } from "../base/json.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import { Method } from "../protocol/legacy.ts";
import type { ClientDeclaration } from "../upstream/profile.ts";
import { OwnRequest } from "./own-request.ts";

/** A client's support for sampling (MCP): none, only text, or tools as well. */
export type SamplingSupport = false | "text" | "tools";

/** The support for sampling that a client has declared. */
export function samplingSupportOf({ declaredCapabilities }: ClientDeclaration): SamplingSupport {
  const { sampling } = readCapabilities(declaredCapabilities);
  if (sampling === undefined) return false;
  return sampling.tools === undefined ? "text" : "tools";
}

/** Whether these params of `sampling/createMessage` need a client that has declared `sampling.tools`. */
export function usesTools(params: Readonly<Record<string, unknown>>): boolean {
  return params["tools"] !== undefined || params["toolChoice"] !== undefined;
}

/** The result of `sampling/createMessage`. The hub checks only that it is an object. */
export type SamplingResult = Readonly<Record<string, unknown>>;

/** A plugin's request to the model of a client (`sampling/createMessage`). */
export class Sampling extends OwnRequest<SamplingResult> {
  constructor(server: string, params: Readonly<Record<string, unknown>>) {
    super({
      server,
      method: Method.createMessage,
      params,
      read: (value) => (isJsonObject(value) ? value : undefined),
      refusedText: "The client did not let its model answer",
      invalidText: "The client's answer for its model is invalid.",
    });
  }
}
