import { describeContents } from "../call-result.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { type FoundItem, type LookupChoice, withItem } from "../item-lookup.ts";
import { makeOutputFolder, printReport, showProgressOn } from "./call.ts";

interface ReadOptions extends LookupChoice {
  readonly raw: boolean;
  readonly output: string | undefined;
}

/**
 * `toolmux read`: reads one resource and prints its contents. Without a running hub: if it is known which server has
 * the resource, starts only that server.
 */
export function read(
  invocation: Invocation<ReadOptions>,
  context: CommandContext,
): Promise<number> {
  const [uri = ""] = invocation.args;
  const { raw, output } = invocation.options;
  const use = async ({ reader, line, redactor }: FoundItem): Promise<number> => {
    const folder = await makeOutputFolder(output, context);
    const client = await reader.client();
    const response = await client.readResource(uri, showProgressOn(line));
    line?.clear();
    return printReport(describeContents(response, raw, redactor), folder, context);
  };
  return withItem({ kind: "resources", name: uri, startsServer: true, use }, invocation, context);
}
