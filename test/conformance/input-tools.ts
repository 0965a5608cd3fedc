import {
  type ElicitRequestFormParams,
  fromJsonSchema,
  inputRequired,
  inputResponse,
  type McpServer,
  type ServerContext,
} from "@modelcontextprotocol/server";
import type { Making } from "./everything.ts";
import { say } from "./tools.ts";

export type Form = ElicitRequestFormParams["requestedSchema"];

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

/** All forms of enum properties. */
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

/** The key of a single input request. */
const ANSWER = "answer";

/** Tools with one input request: `input_required` in the modern era, a server request in the legacy era. */
export function registerQuestions(server: McpServer, era: Making["era"]): void {
  server.registerTool(
    "test_sampling",
    { description: "Asks the client's model.", inputSchema: textual<"prompt">("prompt") },
    ({ prompt }, { mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, ANSWER);
      if (answer.kind !== "sampling") {
        return inputRequired({ inputRequests: { [ANSWER]: sample(prompt) } });
      }
      const { content } = answer.result;
      const blocks = Array.isArray(content) ? content : [content];
      const texts = blocks.map((block) => (block.type === "text" ? block.text : block.type));
      return say(`LLM response: ${texts.join("\n")}`);
    },
  );
  server.registerTool(
    "test_elicitation",
    { description: "Asks the user who he is.", inputSchema: textual<"message">("message") },
    ({ message }, context) => fillIn(context, message, PERSON, "User response"),
  );
  const offer = (name: string, description: string, form: Form): void =>
    void server.registerTool(name, { description }, (context) =>
      fillIn(context, "Please fill this in", form, "Elicitation completed"),
    );
  offer("test_elicitation_sep1034_defaults", "Asks with an answer to everything.", DEFAULTS);
  offer("test_elicitation_sep1330_enums", "Asks to choose, in all ways.", CHOICES);
  offer("test_streaming_elicitation", "Asks for a form on the way of the call.", PERSON);
  server.registerTool(
    "test_missing_capability",
    { description: "Asks the client's model, whether or not it has said that it has one." },
    async ({ mcpReq: { inputResponses, send } }) => {
      if (era === "legacy") {
        const { model } = await send({ method: "sampling/createMessage", params: question("Hi") });
        return say(`Sampled with ${model}.`);
      }
      if (inputResponse(inputResponses, ANSWER).kind === "sampling") return say("Sampled.");
      return inputRequired({ inputRequests: { [ANSWER]: sample("Hi") } });
    },
  );
}

function fillIn({ mcpReq }: ServerContext, message: string, form: Form, outcome: string) {
  const answer = inputResponse(mcpReq.inputResponses, ANSWER);
  if (answer.kind !== "elicit") {
    return inputRequired({ inputRequests: { [ANSWER]: elicit(message, form) } });
  }
  const { action, content } = answer;
  return say(`${outcome}: action=${action}, content=${JSON.stringify(content)}`);
}

/** A form elicitation. */
export function elicit(message: string, requestedSchema: Form) {
  return inputRequired.elicit({ message, requestedSchema });
}

/** A sampling request. */
export function sample(prompt: string) {
  return inputRequired.createMessage(question(prompt));
}

function question(text: string) {
  return {
    messages: [{ role: "user" as const, content: { type: "text" as const, text } }],
    maxTokens: 100,
  };
}

/** A schema of one required string argument. */
function textual<Name extends string>(name: Name) {
  return fromJsonSchema<Record<Name, string>>({
    type: "object",
    properties: { [name]: { type: "string" } },
    required: [name],
  });
}
