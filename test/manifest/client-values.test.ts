import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  differingValues,
  fillWithClientValues,
  valueNamesOf,
  variablesOf,
} from "../../src/manifest/client-values.ts";
import type { RemoteServer, StdioServer } from "../../src/manifest/manifest.ts";
import { manifestOf, stdioSpecOf } from "../fixtures/memory-hub.ts";

const HOME = { cwd: "/home/project", env: {} };

function remoteOf(settings: Partial<RemoteServer>): RemoteServer {
  return {
    ...stdioSpecOf("web"),
    kind: "remote",
    url: "https://example.org",
    transport: "auto",
    headers: {},
    keyFile: undefined,
    ca: undefined,
    auth: "auto",
    oauth: {},
    ...settings,
  };
}

describe("the variables that a manifest takes from clients", () => {
  it("are those of ${env:…} in every text of every kind of server, and those of inheritEnv", () => {
    const { servers } = manifestOf({
      one: {
        command: "${env:COMMAND}",
        args: ["--x=${env:ARG:-none}", "$${env:LITERAL}", "${secret:s}", "${workspaceFolder}"],
        env: { A: "${env:VALUE}", PLAIN: "b" },
        cwd: "${env:FOLDER}",
        inheritEnv: ["AWS_PROFILE", "VALUE"],
      },
      off: { enabled: false, inheritEnv: ["OFF"] },
      client: { syntax: "client", args: ["${OWN}", "${env:CLIENT}"] },
    });
    const web = remoteOf({
      url: "${env:URL}",
      headers: { Authorization: "Bearer ${env:TOKEN}" },
      keyFile: "${env:KEY_FILE}",
      ca: "${env:CA}",
      oauth: { clientSecret: "${env:CLIENT_SECRET}", scopes: ["${env:SCOPE}"] },
    });
    const expected =
      "ARG AWS_PROFILE CA CLIENT CLIENT_SECRET COMMAND FOLDER KEY_FILE OFF OWN SCOPE TOKEN URL VALUE";
    assert.deepEqual(variablesOf({ servers: [...servers, web] }), expected.split(" "));
  });
});

describe("an entry that is filled in with a client's values", () => {
  /** For each entry: values that make the same of it, and values that make something else. */
  const CASES: readonly {
    readonly name: string;
    readonly entry: Partial<StdioServer>;
    readonly same: readonly (readonly [object, object])[];
    readonly other: readonly (readonly [object, object])[];
  }[] = [
    {
      name: "${env:A}",
      entry: { env: { X: "${env:A}" } },
      same: [[{ env: { A: "1", B: "2" } }, { env: { A: "1" }, cwd: "/b" }]],
      other: [
        [{ env: { A: "1" } }, { env: { A: "2" } }],
        [{ env: { A: "" } }, { env: {} }],
      ],
    },
    {
      name: "${env:A:-f}",
      entry: { args: ["${env:A:-f}"] },
      same: [
        [{ env: { A: "f" } }, { env: {} }],
        [{ env: { A: "" } }, { env: {} }],
      ],
      other: [[{ env: { A: "g" } }, { env: {} }]],
    },
    {
      name: "two in one text",
      entry: { args: ["${env:A}${env:B}"] },
      same: [[{ env: { A: "x", B: "yz" } }, { env: { A: "xy", B: "z" } }]],
      other: [[{ env: { A: "x", B: "y" } }, { env: { A: "y", B: "x" } }]],
    },
    {
      name: "two texts",
      entry: { args: ["${env:A}", "${env:B}"] },
      same: [],
      other: [[{ env: { A: "x", B: "yz" } }, { env: { A: "xy", B: "z" } }]],
    },
    {
      name: "inheritEnv",
      entry: { inheritEnv: ["A"] },
      same: [[{ env: { A: "1" } }, { env: { A: "1", B: "1" } }]],
      other: [
        [{ env: { A: "1" } }, { env: {} }],
        [{ env: { A: "" } }, { env: {} }],
      ],
    },
    {
      name: "inheritEnv that env overrides",
      entry: { inheritEnv: ["A"], env: { A: "own" } },
      same: [[{ env: { A: "1" } }, { env: { A: "2" } }]],
      other: [],
    },
    {
      name: "${workspaceFolder}",
      entry: { args: ["${workspaceFolder}/x"] },
      same: [[{ cwd: "/a" }, { cwd: "/a", env: { A: "1" } }]],
      other: [[{ cwd: "/a" }, { cwd: "/b" }]],
    },
    {
      name: "${workspaceFolderBasename}",
      entry: { syntax: "client", args: ["${workspaceFolderBasename}"] },
      same: [[{ cwd: "/a/x" }, { cwd: "/b/x" }]],
      other: [[{ cwd: "/a/x" }, { cwd: "/a/y" }]],
    },
  ];
  for (const { name, entry, same, other } of CASES) {
    const spec = stdioSpecOf("a", entry);
    const textOf = (values: object): string => fillWithClientValues(spec, { ...HOME, ...values });
    it(`is equal exactly if the same process would be started: ${name}`, () => {
      for (const [a, b] of same) assert.equal(textOf(a), textOf(b));
      for (const [a, b] of other) assert.notEqual(textOf(a), textOf(b));
    });
  }

  it("is no matter of clients without placeholders, or with those that are equal for all", () => {
    const plain = { args: ["${secret:s}", "${file:f}", "${cmd:c}", "$${env:A}"], env: { A: "b" } };
    assert.deepEqual(valueNamesOf(stdioSpecOf("a", plain)), []);
    const client = { syntax: "client", args: ["${userHome}${pathSeparator}"] } as const;
    assert.deepEqual(valueNamesOf(stdioSpecOf("a", client)), []);
  });

  it("differs in named values", () => {
    const spec = stdioSpecOf("a", { args: ["${env:A} ${workspaceFolder}"], inheritEnv: ["B"] });
    const one = { cwd: "/a", env: { A: "1", B: "2", C: "3" } };
    const differing = (other: object): readonly string[] =>
      differingValues(spec, one, { ...one, ...other });
    assert.deepEqual(differing({ env: { A: "1", B: "0" } }), ["B"]);
    assert.deepEqual(differing({ cwd: "/b" }), ["${workspaceFolder}"]);
    assert.deepEqual(differing({}), []);
    assert.deepEqual(differingValues(spec, one, undefined).toSorted(), [
      "${workspaceFolder}",
      "A",
      "B",
    ]);
  });
});
