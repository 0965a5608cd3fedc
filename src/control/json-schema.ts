import { toJsonSchema } from "@valibot/to-json-schema";
import { type Endpoint, ENDPOINTS } from "./endpoints.ts";
import { API_PATH, type DocumentName, DOCUMENTS } from "./schemas.ts";

const referTo = (name: DocumentName): object => ({ $ref: `#/$defs/${name}` });

function schemaOfAnswer(answer: NonNullable<Endpoint["answer"]>): object {
  if (answer === "object") return { type: "object" };
  if (typeof answer === "string") return referTo(answer);
  const properties = Object.entries(answer).map(([member, name]) => {
    const items = name === "names" ? { type: "string" } : referTo(name);
    return [member, { type: "array", items }];
  });
  return {
    type: "object",
    properties: Object.fromEntries(properties) as object,
    required: Object.keys(answer),
  };
}

function describeEndpoint({ says, query, body, answer, events, statuses }: Endpoint): object {
  const document = answer ?? events;
  return {
    description: says,
    ...(query !== undefined && { query: Object.keys(query) }),
    ...(body !== undefined && { body: referTo(body) }),
    ...(document !== undefined && { answer: schemaOfAnswer(document) }),
    statuses: statuses ?? [document === undefined ? 204 : 200],
  };
}

/**
 * The JSON Schema of each document of the API (`$defs`), and each endpoint by its method and path (`endpoints`): what
 * it does, the parameters of its query, the schemas of its body and of its answer, and the statuses of its answers.
 */
export function makeControlSchema(): object {
  const definitions = Object.entries(DOCUMENTS).map(([name, schema]) => [
    name,
    toJsonSchema(schema, {
      target: "draft-2020-12",
      ignoreActions: ["readonly"],
      overrideSchema: ({ valibotSchema }) =>
        valibotSchema.type === "custom" ? { type: "object" } : undefined,
    }),
  ]);
  const endpoints = Object.entries(ENDPOINTS).map(([route, endpoint]) => [
    route.replace(" ", ` ${API_PATH}`),
    describeEndpoint(endpoint),
  ]);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "toolmux control API",
    endpoints: Object.fromEntries(endpoints) as object,
    $defs: Object.fromEntries(definitions) as object,
  };
}
