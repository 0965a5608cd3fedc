import { HubError } from "../../base/errors.ts";
import { lastMember, type JsonMember, scanObject, parseRange } from "../../base/json.ts";
import type { Response } from "../../jsonrpc/message.ts";

/**
 * The error for a request that failed because its server was refused a request that the client does not support.
 * @param required the capabilities that the client would have to declare, as an object of `capabilities`
 * @returns undefined if the server succeeded without
 */
export function missingCapabilityErrorOf(
  { bytes, body, outcome }: Response,
  server: string,
  required: object,
): HubError | undefined {
  const members = scanObject(bytes, body.start)?.items ?? [];
  const read = (member: JsonMember | undefined): unknown => member && parseRange(bytes, member);
  const hasFailed = outcome === "error" || read(lastMember(members, "isError")) === true;
  if (!hasFailed) return undefined;
  const serverText =
    outcome === "error"
      ? read(lastMember(members, "message"))
      : firstText(read(lastMember(members, "content")));
  const names = Object.keys(required).join(" and ");
  const text = `Server "${server}" needs a client that can be asked for ${names}.`;
  const data = { requiredCapabilities: required };
  return new HubError(
    "missingCapability",
    typeof serverText === "string" ? `${text} It says: ${serverText}` : text,
    { server, data },
  );
}

function firstText(content: unknown): unknown {
  const first: unknown = Array.isArray(content) ? content[0] : undefined;
  return typeof first === "object" && first !== null && "text" in first ? first.text : undefined;
}
