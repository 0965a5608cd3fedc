import { HubError } from "../../errors.ts";
import { lastMember, type Member, scanObject, valueOf } from "../../json.ts";
import type { Response } from "../../wire/jsonrpc.ts";

/**
 * Why a request failed whose server was refused what it asked, as the client has not said that it can do that.
 * @param needed what it would have to be able to do; @returns undefined if the server managed without
 */
export function readLack(
  { bytes, body, outcome }: Response,
  server: string,
  needed: object,
): HubError | undefined {
  const members = scanObject(bytes, body.start)?.items ?? [];
  const read = (member: Member | undefined): unknown => member && valueOf(bytes, member);
  const hasFailed = outcome === "error" || read(lastMember(members, "isError")) === true;
  if (!hasFailed) return undefined;
  const said =
    outcome === "error"
      ? read(lastMember(members, "message"))
      : firstText(read(lastMember(members, "content")));
  const what = Object.keys(needed).join(" and ");
  const text = `Server "${server}" needs a client that can be asked for ${what}.`;
  const data = { requiredCapabilities: needed };
  return new HubError(
    "missingCapability",
    typeof said === "string" ? `${text} It says: ${said}` : text,
    { server, data },
  );
}

function firstText(content: unknown): unknown {
  const first: unknown = Array.isArray(content) ? content[0] : undefined;
  return typeof first === "object" && first !== null && "text" in first ? first.text : undefined;
}
