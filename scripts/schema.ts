/**
 * Generates toolmux.schema.json for editors: the JSON Schema of the manifest, from the schemas that validate the
 * manifest. `npm run docs` writes the file.
 */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { type ConversionConfig, type JsonSchema, toJsonSchema } from "@valibot/to-json-schema";
import type { GenericSchema } from "valibot";
import { SCHEMA_ID } from "../src/base/homepage.ts";
import { FILTER_LIMITS } from "../src/manifest/filter.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS } from "../src/manifest/manifest.ts";
import {
  agentFilesSchema,
  agentSchema,
  defaultsSchema,
  fileSchema,
  hubLimitsSchema,
  fleetSchema,
  hubSchema,
  modelSchema,
  modeSchema,
  namedClientSchema,
  pluginSchema,
  PROCESS_KEYS,
  registrySchema,
  REMOTE_KEYS,
  secretsSchema,
  serverSchema,
  telemetrySchema,
  toolSearchSchema,
} from "../src/manifest/schema.ts";
import { formatDuration, type Notes } from "../src/manifest/fields.ts";
import { isTable } from "../src/manifest/table.ts";

/** Regular expressions for durations and sizes that are written as text. */
export const PATTERNS = {
  ms: String.raw`^\s*\d+(\.\d+)? ?(ms|s|m|h|d)\s*$`,
  bytes: String.raw`^\s*\d+(\.\d+)? ?([Kk]|[Mm]|[Gg])?[Ii]?[Bb]\s*$`,
} as const;

/** Metadata in the manifest's own schemas, for facts that the converter cannot see. */
interface Marks {
  readonly notes?: Notes;
  readonly unit?: keyof typeof PATTERNS;
  readonly min?: number;
  readonly max?: number;
  /** A number outside the range from `min` to `max` that is allowed, too. */
  readonly off?: number | undefined;
  /** Whether the schema is that of a filter of entries, which is recursive. */
  readonly filter?: boolean;
}

const CONFIG: ConversionConfig = {
  target: "draft-2020-12",
  typeMode: "input",
  overrideSchema({ valibotSchema, jsonSchema }) {
    if (valibotSchema.type === "custom") return { type: "object" };
    if (valibotSchema.type !== "record") return undefined;
    const { propertyNames: _, ...schema } = jsonSchema;
    return schema;
  },
  overrideAction({ valibotAction, jsonSchema }) {
    // These checks (that a value is JSON, and rules about several keys) are not converted.
    if (valibotAction.type === "check" || valibotAction.type === "raw_check") return jsonSchema;
    if (valibotAction.type !== "metadata") return undefined;
    const marks = (valibotAction as unknown as { metadata: Marks }).metadata;
    // The converter has already added the marks to the schema, as if they were keywords.
    const keywords = Object.entries(jsonSchema).filter(([key]) => !Object.hasOwn(marks, key));
    const rest = Object.fromEntries(keywords) as JsonSchema;
    if (marks.notes !== undefined) {
      const {
        title,
        description,
        shown: _shown,
        template: _template,
        change: _change,
        ...notes
      } = marks.notes;
      return { title, description, ...rest, ...(notes as JsonSchema) };
    }
    if (marks.filter === true) {
      const { type: _, ...notes } = rest;
      return { ...notes, $ref: "#/$defs/filter" };
    }
    if (marks.unit === undefined) return undefined;
    const { min = 0, max = Infinity, off } = marks;
    const { anyOf: _, ...notes } = rest;
    return {
      ...notes,
      anyOf: [
        { type: "string", pattern: PATTERNS[marks.unit] },
        { type: "number", minimum: min, maximum: max },
        ...(off === undefined ? [] : [{ const: off }]),
      ],
    };
  },
};

function convert(schema: GenericSchema): JsonSchema {
  const { $schema: _, ...converted } = toJsonSchema(schema, CONFIG);
  return withoutEmpty(converted);
}

/** A schema without the empty `required` of tables whose keys are all optional. */
function withoutEmpty({
  properties,
  required = [],
  additionalProperties: items,
  ...schema
}: JsonSchema): JsonSchema {
  const inner = Object.entries(properties ?? {}).map(([key, property]) => [
    key,
    withoutEmpty(property as JsonSchema),
  ]);
  return {
    ...schema,
    ...(items !== undefined && {
      additionalProperties: typeof items === "object" ? withoutEmpty(items) : items,
    }),
    ...(required.length > 0 && { required }),
    ...(properties !== undefined && {
      properties: Object.fromEntries(inner) as Record<string, JsonSchema>,
    }),
  };
}

/** A filter: `"all"`, or a table with exactly one key. */
function makeFilter(): JsonSchema {
  const self: JsonSchema = { $ref: "#/$defs/filter" };
  const names: JsonSchema = { type: "array", items: { type: "string", minLength: 1 } };
  const ids: JsonSchema = {
    type: "array",
    items: { type: "string", pattern: String.raw`^.+\..+$` },
  };
  const filters: JsonSchema = { type: "array", items: self };
  const parts: Readonly<Record<string, JsonSchema>> = {
    servers: names,
    tools: names,
    ids,
    names,
    pattern: { type: "string", minLength: 1, maxLength: FILTER_LIMITS.pattern },
    readOnly: { const: true },
    and: filters,
    or: filters,
    not: self,
  };
  const tables = Object.entries(parts).map(([key, value]): JsonSchema => ({
    type: "object",
    properties: { [key]: value },
    required: [key],
    additionalProperties: false,
  }));
  return { anyOf: [{ const: "all" }, ...tables] };
}

const FLEET_KEYS = ["fleet", "spread"];

/** The kinds of servers. A server has exactly one of these keys, and none of the keys that belong to another kind. */
const KINDS: readonly JsonSchema[] = [
  makeKind("command", [...REMOTE_KEYS, ...FLEET_KEYS, "plugin", "package", "runner"]),
  makeKind("package", [...REMOTE_KEYS, ...FLEET_KEYS, "plugin", "command"]),
  makeKind("url", [...PROCESS_KEYS, ...FLEET_KEYS, "plugin"]),
  makeKind("plugin", [...PROCESS_KEYS, ...REMOTE_KEYS, ...FLEET_KEYS]),
  makeKind("fleet", [...PROCESS_KEYS, ...REMOTE_KEYS, "plugin"]),
];

function makeKind(key: string, others: readonly string[]): JsonSchema {
  const properties = { [key]: true, ...Object.fromEntries(others.map((other) => [other, false])) };
  return { required: [key], properties };
}

/** The schema of a table with the default of each property added, because the table's own schema has no defaults. */
function withDefaults(schema: JsonSchema, defaults: Readonly<Record<string, unknown>>): JsonSchema {
  const properties = Object.entries(schema.properties ?? {}).map(([key, property]) => {
    const table = property as JsonSchema;
    const value = defaults[key];
    if (value === undefined) return [key, table];
    const inner = isTable(value) ? withDefaults(table, value) : table;
    return [key, { ...inner, default: isTable(value) ? value : formatDefault(value, table) }];
  });
  return { ...schema, properties: Object.fromEntries(properties) as Record<string, JsonSchema> };
}

/** Formats a duration or a size as text; any other value, and 0, remains unchanged. */
function formatDefault(value: unknown, { anyOf = [] }: JsonSchema): unknown {
  if (typeof value !== "number" || value === 0) return value;
  const patterns = anyOf.map((choice) => (choice as JsonSchema).pattern);
  if (patterns.includes(PATTERNS.ms)) return formatDuration(value);
  return patterns.includes(PATTERNS.bytes) ? `${value / 2 ** 20}MiB` : value;
}

/** The whole schema, as it is written to the file. */
export function makeSchema(): JsonSchema {
  const server = withDefaults(convert(serverSchema), { ...LIMIT_DEFAULTS });
  const contents: Readonly<Record<string, JsonSchema>> = {
    hub: withDefaults(convert(hubSchema()), HUB_DEFAULTS),
    defaults: withDefaults(convert(defaultsSchema()), { ...LIMIT_DEFAULTS }),
    servers: {
      type: "object",
      propertyNames: { minLength: 1 },
      additionalProperties: { title: "Server", ...server, oneOf: [...KINDS] },
    },
    models: {
      type: "object",
      propertyNames: { minLength: 1 },
      additionalProperties: { title: "Model", ...convert(modelSchema()) },
    },
    agents: {
      type: "object",
      propertyNames: { pattern: "^[A-Za-z0-9_-]{1,64}$" },
      additionalProperties: { title: "Agent", ...convert(agentSchema()) },
    },
    agentFiles: convert(agentFilesSchema()),
    fleet: convert(fleetSchema()),
    search: convert(registrySchema()),
    toolSearch: convert(toolSearchSchema()),
    modes: {
      type: "object",
      propertyNames: { pattern: "^(?!full$)[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$" },
      additionalProperties: { title: "Mode", ...convert(modeSchema()) },
    },
    clients: { type: "array", items: { title: "Client", ...convert(namedClientSchema()) } },
    plugins: { type: "array", items: { title: "Plugin", ...convert(pluginSchema()) } },
    limits: convert(hubLimitsSchema()),
    telemetry: convert(telemetrySchema()),
    secrets: convert(secretsSchema()),
  };
  const file = convert(fileSchema);
  const properties = Object.entries(file.properties ?? {}).map(([key, notes]) => [
    key,
    { ...(notes as JsonSchema), ...contents[key] },
  ]);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    $id: SCHEMA_ID,
    title: "toolmux manifest",
    description: "The MCP servers that toolmux makes look like one, in TOML or JSON.",
    ...file,
    properties: Object.fromEntries(properties) as Record<string, JsonSchema>,
    $defs: { filter: makeFilter() },
  };
}

/** Writes the schema, and formats it. */
export function writeSchema(): void {
  const file = fileURLToPath(new URL("../toolmux.schema.json", import.meta.url));
  writeFileSync(file, JSON.stringify(makeSchema(), null, 2));
  spawnSync(process.execPath, ["fmt", file], { stdio: "inherit" });
}
