import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  expandMessage,
  renderPrompt,
  unsupportedPlaceholder,
} from "../../src/agent-files/named-prompts.ts";

const prompt = (instruction: string) => ({ description: undefined, instruction });
const ENV = { USER: "alice", EMPTY: "" };

describe("a prompt of an agent's file", () => {
  for (const [instruction, rest, expected] of [
    ["Say hello", "", "Say hello"],
    ["Fix", "a b", "Fix a b"],
    ["Fix ${args}", "a  'b c'", "Fix a b c"],
    ["Fix ${args[0]} in ${args[1]}", "a 'b c'", "Fix a in b c"],
    ["Fix ${args[2] || 'all'}.", "a", "Fix all."],
    ['Fix ${args.join(", ")}', "a b", "Fix a, b"],
    ["Fix $1 and $2", "a b c", "Fix a and b"],
    ["Hello $USER, ${USER}, ${env.USER}", "", "Hello alice, alice, alice"],
    ["[${env.NOBODY}] [${env.EMPTY || 'none'}] [$NOBODY]", "", "[] [none] []"],
    ["It costs 5$ or $ 5", "", "It costs 5$ or $ 5"],
    ["Do ${shell({cmd: 'ls'})}", "", "Do ${shell({cmd: 'ls'})}"],
    ["Fix ${args}", "$USER ${USER}", "Fix $USER ${USER}"],
  ] as const) {
    it(`is sent with its arguments and variables: ${instruction} (${rest})`, () => {
      assert.equal(renderPrompt(prompt(instruction), rest, ENV), expected);
    });
  }

  it("keeps the names of variables if its file is not trusted", () => {
    const text = renderPrompt(prompt("$USER ${env.USER} ${args}"), "x", undefined);
    assert.equal(text, "$USER ${env.USER} x");
  });

  it("is named by the first word of a message, and no other message is changed", () => {
    const prompts = new Map([["fix-lint", prompt("Fix the lint: ${args}")]]);
    assert.equal(expandMessage("/fix-lint src", prompts, ENV), "Fix the lint: src");
    for (const text of ["/fix", "fix-lint src", "/", "", "/etc/passwd says $USER"])
      assert.equal(expandMessage(text, prompts, ENV), text);
  });

  it("that runs a program is found", () => {
    assert.equal(unsupportedPlaceholder(prompt("a ${shell({cmd: 1})} b")), "${shell({cmd: 1}");
    for (const text of ["${args}", "$A", "${env.A || 'b'}", "${args[0]}"])
      assert.equal(unsupportedPlaceholder(prompt(text)), undefined, text);
  });
});
