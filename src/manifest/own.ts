import { describe, type Complaint, type Path } from "./problem.ts";
import { defaultsSchema, fileSchema, hubSchema, serverSchema, type ServerInput } from "./schema.ts";
import type { Draft, Reading } from "./reading.ts";
import { createTable, isTable, type Table } from "./table.ts";
import { parseTemplate } from "./template.ts";
import { validate } from "./validate.ts";

/** Reads a file in our own schema: whatever is wrong in it is a complaint. */
export function readOwn(root: unknown): Reading {
  const checked = validate(fileSchema, root, []);
  const table = isTable(root) ? root : {};
  const settings = readSettings(table);
  const listed = readServers(table["servers"] ?? {}, ["servers"]);
  return {
    ...settings,
    servers: listed.servers,
    complaints: [
      ...(checked.ok ? [] : checked.complaints),
      ...settings.complaints,
      ...listed.complaints,
    ],
    notes: [],
  };
}

/** Reads what a file says of the hub itself. */
export function readSettings(table: Table): Pick<Reading, "hub" | "defaults" | "complaints"> {
  const hub = validate(hubSchema, table["hub"] ?? {}, ["hub"]);
  const defaults = validate(defaultsSchema, table["defaults"] ?? {}, ["defaults"]);
  return {
    hub: hub.ok ? hub.value : {},
    defaults: defaults.ok ? defaults.value : {},
    complaints: [hub, defaults].flatMap((checked) => (checked.ok ? [] : checked.complaints)),
  };
}

/** Reads a table of servers in our own schema, found under `base`. */
export function readServers(table: unknown, base: Path): Pick<Reading, "servers" | "complaints"> {
  const servers = new Map<string, Draft>();
  if (!isTable(table)) {
    const message = `expected a table of servers, found ${describe(table, false)}`;
    return { servers, complaints: [{ path: base, at: "value", message }] };
  }
  const complaints: Complaint[] = [];
  for (const [name, entry] of Object.entries(table)) {
    const path = [...base, name];
    const checked = validate(serverSchema, entry, path);
    if (!checked.ok) complaints.push(...checked.complaints);
    if (isTable(entry)) complaints.push(...findFaults(entry, path));
    if (name === "") complaints.push({ path, at: "key", message: "a server needs a name" });
    const input = checked.ok ? checked.value : standIn(entry);
    servers.set(name, { kind: "stdio", syntax: "toolmux", path, input });
  }
  return { servers, complaints };
}

/** What the rules between servers need to know of one that has a complaint and so will never be used. */
function standIn(entry: unknown): ServerInput {
  const { prefix, enabled } = isTable(entry) ? entry : createTable<unknown>();
  return {
    command: "",
    ...(typeof prefix === "string" && { prefix }),
    ...(typeof enabled === "boolean" && { enabled }),
  };
}

/** Every `${…}` that could never be filled in. */
function findFaults({ command, cwd, args, env }: Table, base: Path): Complaint[] {
  const texts: (readonly [Path, unknown])[] = [
    [["command"], command],
    [["cwd"], cwd],
    ...(Array.isArray(args) ? args : []).map((text: unknown, i) => [["args", i], text] as const),
    ...Object.entries(isTable(env) ? env : {}).map(([key, text]) => [["env", key], text] as const),
  ];
  return texts.flatMap(([path, text]) =>
    parseTemplate(typeof text === "string" ? text : "", "toolmux").flatMap((part): Complaint[] =>
      part.kind === "fault"
        ? [{ path: [...base, ...path], at: "value", message: `found ${part.message}` }]
        : [],
    ),
  );
}
