import {
  type ElicitRequestFormParams,
  fromJsonSchema,
  type McpServer,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { say } from "./tools.ts";

type Form = ElicitRequestFormParams["requestedSchema"];

const PERSON: Form = {
  type: "object",
  properties: {
    username: { type: "string", description: "User's response" },
    email: { type: "string", description: "User's email address" },
  },
  required: ["username", "email"],
};

const DEFAULTS: Form = {
  type: "object",
  properties: {
    name: { type: "string", default: "John Doe" },
    age: { type: "integer", default: 30 },
    score: { type: "number", default: 95.5 },
    status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
    verified: { type: "boolean", default: true },
  },
  required: [],
};

/** All ways that there are to write a choice. */
const CHOICES: Form = {
  type: "object",
  properties: {
    untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
    titledSingle: {
      type: "string",
      oneOf: [
        { const: "value1", title: "First Option" },
        { const: "value2", title: "Second Option" },
        { const: "value3", title: "Third Option" },
      ],
    },
    legacyEnum: {
      type: "string",
      enum: ["opt1", "opt2", "opt3"],
      enumNames: ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti: {
      type: "array",
      items: { type: "string", enum: ["option1", "option2", "option3"] },
    },
    titledMulti: {
      type: "array",
      items: {
        anyOf: [
          { const: "value1", title: "First Choice" },
          { const: "value2", title: "Second Choice" },
          { const: "value3", title: "Third Choice" },
        ],
      },
    },
  },
  required: [],
};

/** Tools that ask the client. */
export function registerQuestions(server: McpServer): void {
  server.registerTool(
    "test_sampling",
    { description: "Asks the client's model.", inputSchema: textual<"prompt">("prompt") },
    async ({ prompt }, { mcpReq: { send } }) => {
      const { content } = await send({
        method: "sampling/createMessage",
        params: {
          messages: [{ role: "user", content: { type: "text", text: prompt } }],
          maxTokens: 100,
        },
      });
      const blocks = Array.isArray(content) ? content : [content];
      const texts = blocks.map((block) => (block.type === "text" ? block.text : block.type));
      return say(`LLM response: ${texts.join("\n")}`);
    },
  );
  server.registerTool(
    "test_elicitation",
    { description: "Asks the user who he is.", inputSchema: textual<"message">("message") },
    async ({ message }, context) => {
      const { action, content } = await elicit(context, message, PERSON);
      return say(`User response: action=${action}, content=${JSON.stringify(content)}`);
    },
  );
  const offer = (name: string, description: string, form: Form): void =>
    void server.registerTool(name, { description }, async (context) => {
      const { action, content } = await elicit(context, "Please fill this in", form);
      return say(`Elicitation completed: action=${action}, content=${JSON.stringify(content)}`);
    });
  offer("test_elicitation_sep1034_defaults", "Asks with an answer to everything.", DEFAULTS);
  offer("test_elicitation_sep1330_enums", "Asks to choose, in all ways.", CHOICES);
}

function elicit({ mcpReq: { send } }: ServerContext, message: string, requestedSchema: Form) {
  return send({ method: "elicitation/create", params: { message, requestedSchema } });
}

/** A schema for arguments that are one text. */
function textual<Name extends string>(name: Name) {
  return fromJsonSchema<Record<Name, string>>({
    type: "object",
    properties: { [name]: { type: "string" } },
    required: [name],
  });
}
