import { textOf } from "../base/bytes.ts";
import type { ListedItem } from "../catalog/listing.ts";
import { HubError } from "../base/errors.ts";
import { findNearest } from "../manifest/problems.ts";
import { membersOf } from "../upstream/handshake.ts";

/** So many names are told of those that there are. */
const MOST_NAMES = 20;

/**
 * The tool that is to be called: the one that was named, or the first one that says that it changes nothing and wants no
 * arguments, as nobody has said which and with what.
 * @throws {HubError} usage
 */
export function chooseTool(tools: readonly ListedItem[], named: string | undefined): ListedItem {
  if (named !== undefined) {
    const found = tools.find(({ key }) => key === named);
    if (found !== undefined) return found;
    const nearest = findNearest(
      named,
      tools.map(({ key }) => key),
    );
    const hint = nearest === undefined ? listNames(tools) : ` Did you mean "${nearest}"?`;
    throw new HubError("usage", `There is no tool "${named}".${hint}`);
  }
  const harmless = tools.find(isHarmless);
  if (harmless !== undefined) return harmless;
  const text = "None of the tools says that it changes nothing and wants no arguments:";
  throw new HubError("usage", `${text} name one with --tool, and --args.${listNames(tools)}`);
}

function isHarmless({ bytes }: ListedItem): boolean {
  const { annotations, inputSchema } = membersOf(JSON.parse(textOf(bytes)));
  const { required } = membersOf(inputSchema);
  const needs = Array.isArray(required) && required.length > 0;
  return !needs && membersOf(annotations)["readOnlyHint"] === true;
}

function listNames(tools: readonly ListedItem[]): string {
  if (tools.length === 0) return " It has no tools.";
  const names = tools.slice(0, MOST_NAMES).map(({ key }) => key);
  const more = tools.length > MOST_NAMES ? ", …" : "";
  return ` There are: ${names.join(", ")}${more}.`;
}
