import { McpServer } from "@modelcontextprotocol/server";
import { VERSION } from "../base/version.ts";
import { resultOf, schemaOf, textResult } from "./schema.ts";

const ZONE = {
  type: "string",
  description: 'a time zone such as "Asia/Tokyo"; UTC if left out',
} as const;

/** Tells the time, anywhere. */
export function createClockServer(): McpServer {
  const server = new McpServer({ name: "demo-clock", version: VERSION });
  server.registerTool(
    "now",
    {
      description: "The time in a time zone.",
      inputSchema: schemaOf<{ zone?: string }>({ zone: ZONE }),
      annotations: { readOnlyHint: true },
    },
    ({ zone = "UTC" }) => {
      const now = new Date();
      const offset = readOffset(zone, now);
      if (offset === undefined) return textResult(`There is no time zone "${zone}".`, true);
      const local = new Date(now.getTime() + offset * 60_000).toISOString().slice(0, 19);
      const time = `${local}${formatOffset(offset)}`;
      return resultOf({ zone, time, epoch: now.getTime() }, `${time} (${zone})`);
    },
  );
  server.registerTool(
    "offset",
    {
      description: "How many minutes a time zone is ahead of UTC now.",
      inputSchema: schemaOf<{ zone?: string }>({ zone: ZONE }),
      annotations: { readOnlyHint: true },
    },
    ({ zone = "UTC" }) => {
      const minutes = readOffset(zone, new Date());
      if (minutes === undefined) return textResult(`There is no time zone "${zone}".`, true);
      return resultOf({ zone, minutes }, String(minutes));
    },
  );
  return server;
}

/** Minutes ahead of UTC; undefined if there is no such zone. */
function readOffset(timeZone: string, date: Date): number | undefined {
  try {
    const format = new Intl.DateTimeFormat("en", { timeZone, timeZoneName: "longOffset" });
    const name =
      format.formatToParts(date).find(({ type }) => type === "timeZoneName")?.value ?? "";
    const [, sign, hours = 0, minutes = 0] = /GMT(?:([+-])(\d+):(\d+))?/.exec(name) ?? [];
    return (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes));
  } catch {
    return undefined;
  }
}

function formatOffset(minutes: number): string {
  const pad = (value: number): string => String(Math.floor(value)).padStart(2, "0");
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${pad(size / 60)}:${pad(size % 60)}`;
}
