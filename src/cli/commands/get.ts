import { suggestName } from "../../manifest/problems.ts";
import { textOf } from "../../base/bytes.ts";
import { HubError, usageError } from "../../base/errors.ts";
import { readArgumentSource } from "../call-arguments.ts";
import { describePrompt } from "../call-result.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { type FoundItem, type LookupChoice, withItem } from "../item-lookup.ts";
import { printReport, showProgressOn } from "./call.ts";

/** A prompt as clients get it (`Prompt` in the MCP schema). Not validated, because a server may send anything. */
interface Prompt {
  readonly arguments?: readonly { readonly name?: unknown; readonly required?: unknown }[];
}

interface GetOptions extends LookupChoice {
  readonly raw: boolean;
}

/**
 * `toolmux get`: gets one prompt and prints its messages. Without a running hub: if it is known which server has the
 * prompt, starts only that server.
 */
export async function get(
  invocation: Invocation<GetOptions>,
  context: CommandContext,
): Promise<number> {
  const [name = ""] = invocation.args;
  const source = await readArgumentSource({ ...invocation, options: { json: undefined } }, context);
  if (source.kind === "json") throw usageError("The arguments of a prompt are KEY=VALUE.");
  const given = new Map<string, string>();
  for (const { key, value } of source.pairs) {
    if (value.kind === "json") throw usageError(`A prompt takes texts: ${key}=VALUE.`);
    given.set(key, value.kind === "text" ? value.text : textOf(value.bytes));
  }
  const use = async ({ reader, line, redactor }: FoundItem): Promise<number> => {
    const item = (await reader.list("prompts")).find((one) => one.key === name);
    if (item === undefined) throw new HubError("unknownPrompt", `There is no prompt "${name}".`);
    checkArguments(name, JSON.parse(textOf(item.bytes)) as Prompt, given);
    const client = await reader.client();
    const response = await client.getPrompt(name, Object.fromEntries(given), showProgressOn(line));
    line?.clear();
    return printReport(
      describePrompt(response, invocation.options.raw, redactor),
      undefined,
      context,
    );
  };
  return withItem({ kind: "prompts", name, startsServer: true, use }, invocation, context);
}

/**
 * Checks that the prompt declares all given arguments, and that no required one is missing.
 * @throws {HubError} usage
 */
function checkArguments(
  name: string,
  { arguments: declared = [] }: Prompt,
  given: ReadonlyMap<string, string>,
): void {
  const names = declared.map((one) => String(one.name));
  const unknown = [...given.keys()].find((key) => !names.includes(key));
  if (unknown !== undefined) {
    const takes = names.length === 0 ? " It takes none." : ` It takes ${names.join(", ")}.`;
    const near = suggestName(unknown, names) || takes;
    throw usageError(`The prompt "${name}" has no argument "${unknown}".${near}`);
  }
  const missing = declared.filter((one) => one.required === true && !given.has(String(one.name)));
  if (missing.length === 0) return;
  const pairs = missing.map((one) => `${String(one.name)}=TEXT`).join(" ");
  throw usageError(`The prompt needs more: toolmux get ${name} ${pairs}`);
}
