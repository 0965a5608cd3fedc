import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import { loadManifest } from "../../src/manifest/load.ts";
import { fileProblem, findNearest, manifestError } from "../../src/manifest/problems.ts";
import { findProblems, withManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { parseRows, type Row } from "../harness/rows.ts";

const DURATION = `expected a duration such as "30s", "500ms" or "5m", or a number of milliseconds`;
const SIZE = `expected a size such as "64MiB" or "512KB", or a number of bytes`;
const SERVER_KEYS =
  "command, package, runner, args, env, inheritEnv, cwd, url, transport, headers, keyFile, ca, auth, oauth, plugin, title, description, icon, enabled, prefix, fleet, spread, isolation, lazy, era, connectTimeout, callTimeout, maxCallTimeout, maxMessage, healthInterval, reconnect, idleStop, approval, approvalWait, limits, pin, scan, scanIgnore, tools, prompts, skills";
const SOURCES = `"environment", "file"`;
const SEPARATES = "which separates a prefix from the name of a tool";

/** Files, each with its problems below it. */
const TOML = `
  ## unknown keys
  colour = 1⏎constructor = 1⏎plugin = []⏎[server.a]⏎command = "x"
    1:1: colour: unknown key; the known keys are $schema, hub, defaults, servers, plugins, models, agents, agentFiles, modes, clients, telemetry, limits, fleet, secrets, search, toolSearch
    2:1: constructor: unknown key; the known keys are $schema, hub, defaults, servers, plugins, models, agents, agentFiles, modes, clients, telemetry, limits, fleet, secrets, search, toolSearch
    3:1: plugin: unknown key; did you mean "plugins"?
    4:2: server: unknown key; did you mean "servers"?
  hub.name_limit = 64
    1:5: hub.name_limit: unknown key; did you mean "nameLimit"?
  [hub]⏎nmae = "x"⏎paralelStarts = 4⏎toString = 1
    2:1: hub.nmae: unknown key; did you mean "name"?
    3:1: hub.paralelStarts: unknown key; did you mean "parallelStarts"?
    4:1: hub.toString: unknown key; the known keys are name, separator, nameLimit, clientPrefix, listWait, parallelStarts, control, instructions, evictSessions, shared, linger, conversationDays, conversationSize, mode, expose, exposeBudget, pinFile, httpToken
  [defaults]⏎CallTimeout = 1⏎heathInterval = 1⏎reconect.base = 1⏎lazy = true
    2:1: defaults.CallTimeout: unknown key; did you mean "callTimeout"?
    3:1: defaults.heathInterval: unknown key; did you mean "healthInterval"?
    4:1: defaults.reconect: unknown key; did you mean "reconnect"?
    5:1: defaults.lazy: unknown key; the known keys are connectTimeout, callTimeout, maxCallTimeout, maxMessage, healthInterval, reconnect, idleStop, approval, agentApproval, approvalWait, approvalTimeout, pin, scan
  [defaults.reconnect]⏎max_attempts = 4
    2:1: defaults.reconnect.max_attempts: unknown key; did you mean "maxAttempts"?
  …⏎inherit-env = []⏎  tools.alow = []⏎idle_stop = 0⏎lasy = true⏎disabled = true
    3:1: servers.a.inherit-env: unknown key; did you mean "inheritEnv"?
    4:9: servers.a.tools.alow: unknown key; did you mean "allow"?
    5:1: servers.a.idle_stop: unknown key; did you mean "idleStop"?
    6:1: servers.a.lasy: unknown key; did you mean "lazy"?
    7:1: servers.a.disabled: unknown key; write enabled = false
  …⏎"two words" = 1⏎background = true
    3:1: servers.a."two words": unknown key; the known keys are ${SERVER_KEYS}
    4:1: servers.a.background: unknown key; the known keys are ${SERVER_KEYS}
  …⏎tools = { allow = [], deni = [] }⏎reconnect = { polcy = "none", base = "1s", retries = 3 }
    3:23: servers.a.tools.deni: unknown key; did you mean "deny"?
    4:15: servers.a.reconnect.polcy: unknown key; did you mean "policy"?
    4:44: servers.a.reconnect.retries: unknown key; the known keys are policy, base, max, jitter, maxAttempts
  ## values of a wrong type
  hub = 5⏎servers = "x"⏎defaults = 2024-01-01⏎plugins = "x"
    1:7: hub: expected a table, found a number
    2:11: servers: expected a table of servers, found a string
    3:12: defaults: expected a table, found a date
    4:11: plugins: expected an array of tables, found a string
  [[servers]]⏎command = "x"
    1:3: servers: expected a table of servers, found an array
  servers.a = "npx"
    1:13: servers.a: expected a table, found a string
  [hub]⏎name = ""⏎nameLimit = 64.5⏎separator = "::"⏎parallelStarts = 0
    2:8: hub.name: expected a string that is not empty, found ""
    3:13: hub.nameLimit: expected a whole number, found 64.5
    4:13: hub.separator: expected letters, digits, _ and - (at least one), found "::"
    5:18: hub.parallelStarts: expected a whole number, at least 1, found 0
  …⏎enabled = 1⏎args = "a b"⏎env = ["A=1"]⏎isolation = "perclient"⏎lazy = "yes"⏎reconnect = "none"⏎tools = []
    3:11: servers.a.enabled: expected true or false, found 1
    4:8: servers.a.args: expected an array of strings, found a string
    5:7: servers.a.env: expected a table, found an array
    6:13: servers.a.isolation: expected "auto", "shared", "perClient" or "one", found "perclient"
    7:8: servers.a.lazy: expected true or false, found "yes"
    8:13: servers.a.reconnect: expected a table, found a string
    9:9: servers.a.tools: expected a table, found an array
  …⏎args = [⏎  "a", # one⏎  8080,⏎  [true],⏎]⏎env = { A = "a", B = 5, C = true }⏎inheritEnv = ["AWS_*", "A=1"]
    5:3: servers.a.args[1]: expected a string, found a number
    6:3: servers.a.args[2]: expected a string, found an array
    8:22: servers.a.env.B: expected a string, found a number
    8:29: servers.a.env.C: expected a string, found a boolean
    9:15: servers.a.inheritEnv[0]: expected the name of an environment variable, found "AWS_*"
    9:24: servers.a.inheritEnv[1]: expected the name of an environment variable, found "A=1"
  …⏎[servers.a.env]⏎  A.B = "x"
    4:3: servers.a.env.A: expected a string, found a table
  …⏎[servers.a.reconnect]⏎policy = "linear"⏎jitter = 1.1⏎maxAttempts = -1
    4:10: servers.a.reconnect.policy: expected "none", "immediate" or "exponential", found "linear"
    5:10: servers.a.reconnect.jitter: expected a number between 0 and 1, found 1.1
    6:15: servers.a.reconnect.maxAttempts: expected a whole number, 0 for no limit, found -1
  …⏎tools.allow = [""]⏎tools.rename = { a = 1, b = '' }⏎tools.meta.t = { at = 2020-01-01, n = inf }
    3:16: servers.a.tools.allow[0]: expected a string that is not empty, found ""
    4:22: servers.a.tools.rename.a: expected a string, found 1
    4:29: servers.a.tools.rename.b: expected a string that is not empty, found ""
    5:23: servers.a.tools.meta.t.at: expected a JSON value, found a date
    5:39: servers.a.tools.meta.t.n: expected a JSON value, found Infinity
  …⏎tools.annotations.t = { readOnlyHint = 'x', readonly = true }
    3:40: servers.a.tools.annotations.t.readOnlyHint: expected true or false, found "x"
    3:45: servers.a.tools.annotations.t.readonly: unknown key; the known keys are title, readOnlyHint, destructiveHint, idempotentHint, openWorldHint
  …⏎approval = "ask"⏎tools.approval = { a = true, "b*" = "auto" }
    3:12: servers.a.approval: expected "never", "auto" or "always", found "ask"
    4:24: servers.a.tools.approval.a: expected "never", "auto" or "always", found a boolean
  [defaults]⏎approval = 1⏎agentApproval = "yes"⏎approvalTimeout = 0
    2:12: defaults.approval: expected "never", "auto" or "always", found 1
    3:17: defaults.agentApproval: expected "never", "auto" or "always", found "yes"
    4:19: defaults.approvalTimeout: expected a duration of at least 1 ms and at most 2147483647 ms (24.8 days), found 0
  ## rules about several keys beside other problems
  [hub]⏎httpToken = "\${cmd:x}"⏎nmae = "x"
    2:13: hub.httpToken: found the unknown placeholder \${cmd:…}; known placeholders: \${env:NAME}, \${file:PATH}, \${secret:NAME} and \${cmd:COMMAND}
    3:1: hub.nmae: unknown key; did you mean "name"?
  [secrets]⏎sources = ["file", "file"]⏎commands = 1
    2:20: secrets.sources[1]: is in the list twice
    3:12: secrets.commands: expected true or false, found 1
  …⏎url = "u"⏎cwd = 5⏎colour = 1
    2:1: servers.a.command: cannot be used together with url: a server has one of command, package, url, plugin and fleet
    4:1: servers.a.cwd: cannot be used together with url, because toolmux starts no process for a url
    4:7: servers.a.cwd: expected a string, found a number
    5:1: servers.a.colour: unknown key; the known keys are ${SERVER_KEYS}
  [servers.a]⏎package = "docker"
    2:11: servers.a.package: expected a package such as "npm:@scope/name@1.2.3", "pypi:name==1.2" or "docker:image:tag", found "docker"
  ## what is missing
  [servers.a]⏎args = []⏎[servers.b]⏎args = ["b"]⏎[servers.b.env]⏎X = "1"
    1:10: servers.a.command: is missing
    3:10: servers.b.command: is missing
  [servers]⏎a = { args = [] }
    2:1: servers.a.command: is missing
  servers.a.args = []
    1:9: servers.a.command: is missing
  …⏎[servers.""]⏎command = "x"⏎prefix = "p"
    3:10: servers."": a server needs a name
  [servers.a]⏎command = ""
    2:11: servers.a.command: expected a string that is not empty, found a string
  ## plugins
  [plugins]⏎use = "x"
    1:2: plugins: expected an array of tables, found a table; in TOML, write [[plugins]] before each plugin
  plugins = ["x"]
    1:12: plugins[0]: expected a table, found a string
  [[plugins]]⏎[[plugins]]⏎  use = ""⏎[[plugins]]⏎use = 5⏎[[plugins]]⏎use = "a"⏎options = "sk-123"
    1:3: plugins[0].use: is missing
    3:9: plugins[1].use: expected a string that is not empty, found ""
    5:7: plugins[2].use: expected a string, found 5
    8:11: plugins[3].options: expected a table, found a string
  [[plugins]]⏎use = "a"⏎options = []⏎option = {}⏎server = []⏎colour = 1
    3:11: plugins[0].options: expected a table, found an array
    4:1: plugins[0].option: unknown key; did you mean "options"?
    5:1: plugins[0].server: unknown key; did you mean "servers"?
    6:1: plugins[0].colour: unknown key; the known keys are use, options, servers, tools
  [[plugins]]⏎use = "a"⏎servers = "x"⏎tools = [1, ""]
    3:11: plugins[0].servers: expected an array of names or patterns, found "x"
    4:10: plugins[0].tools[0]: expected a string, found 1
    4:13: plugins[0].tools[1]: expected a string that is not empty, found ""
  ## telemetry
  [telemetry]⏎endpoint = "collector:4318"⏎protocol = "grpc"⏎sample = 1.5⏎propagate = "yes"⏎interval = 0⏎headers = { A = "\${cmd:x}" }⏎endpoints = "x"
    2:12: telemetry.endpoint: expected the URL of an OTLP collector, such as "http://127.0.0.1:4318", found a string
    3:12: telemetry.protocol: expected "http/protobuf" or "http/json", found "grpc"
    4:10: telemetry.sample: expected a number from 0 to 1, found 1.5
    5:13: telemetry.propagate: expected "always", "parent" or "never", found "yes"
    6:12: telemetry.interval: expected a duration of at least 1 ms and at most 2147483647 ms (24.8 days), found 0
    7:17: telemetry.headers.A: found the unknown placeholder \${cmd:…}; known placeholders: \${env:NAME}, \${file:PATH}, \${secret:NAME} and \${cmd:COMMAND}
    8:1: telemetry.endpoints: unknown key; did you mean "endpoint"?
  telemetry = 5
    1:13: telemetry: expected a table, found a number
  ## limits
  [limits]⏎rate = "ten"⏎burst = 0⏎quota = "5/2d"⏎maxConcurrent = 1.5⏎maxQueued = 1⏎client = { rate = "0/1m", maxConcurent = 1 }
    2:8: limits.rate: expected a number of calls, at least 1, and a duration, such as "60/1m" or "5/1s", found "ten"
    3:9: limits.burst: expected a whole number, at least 1, found 0
    4:9: limits.quota: expected a number of calls, at least 1, and 1h, 1d or 30d, such as "5000/1d", found "5/2d"
    5:17: limits.maxConcurrent: expected a whole number, at least 1, found 1.5
    6:1: limits.maxQueued: unknown key; the known keys are rate, burst, quota, maxConcurrent, client
    7:19: limits.client.rate: expected a number of calls, at least 1, and a duration, such as "60/1m" or "5/1s", found "0/1m"
    7:27: limits.client.maxConcurent: unknown key; did you mean "maxConcurrent"?
  [limits]⏎client.burst = 5
    2:8: limits.client.burst: needs the key rate, too
  limits = 5
    1:10: limits: expected a table, found a number
  …⏎limits = { rate = 60, maxQueued = -1 }⏎tools.limits = { "x_*" = { rate = "5", maxQueued = 1 }, y = "5/1s" }
    3:19: servers.a.limits.rate: expected a number of calls, at least 1, and a duration, such as "60/1m" or "5/1s", found 60
    3:35: servers.a.limits.maxQueued: expected a whole number, at least 0, found -1
    4:35: servers.a.tools.limits."x_*".rate: expected a number of calls, at least 1, and a duration, such as "60/1m" or "5/1s", found "5"
    4:40: servers.a.tools.limits."x_*".maxQueued: unknown key; the known keys are rate, burst, quota, maxConcurrent
    4:61: servers.a.tools.limits.y: expected a table, found a string
  [[clients]]⏎name = "ci"⏎token = "t"⏎limits = { quota = "1.5/1d", rate = "5/0s" }
    4:20: clients[0].limits.quota: expected a number of calls, at least 1, and 1h, 1d or 30d, such as "5000/1d", found "1.5/1d"
    4:37: clients[0].limits.rate: expected a number of calls, at least 1, and a duration, such as "60/1m" or "5/1s", found "5/0s"
  ## modes and clients
  [modes.full]⏎tools = "all"⏎[modes."a b"]⏎tools = "all"⏎[modes.c]⏎tools.and = [{ tool = ["x"] }, { pattern = "(a+)+" }]⏎titel = "C"
    1:8: modes.full: "full" is the mode that hides nothing, and cannot be changed; use another name
    3:8: modes."a b": the name of a mode has letters, digits, _ . and -, at most 64
    6:16: modes.c.tools.and[0].tool: unknown key; did you mean "tools"?
    6:44: modes.c.tools.and[1].pattern: repeats a group that itself repeats or chooses something, which may take very long; write it without one of the two
    7:1: modes.c.titel: unknown key; did you mean "title"?
  [hub]⏎mode = "revew"⏎[modes.review]⏎tools = { servers = ["a"], tools = ["b"] }
    2:8: hub.mode: there is no mode "revew"; did you mean "review"?
    4:28: modes.review.tools.tools: cannot be used together with servers: a filter has one key; write and = [ … ] or or = [ … ]
  [hub]⏎mode = "a"⏎[modes.a]⏎title = 5
    2:8: hub.mode: the table of mode "a" has a problem
    3:8: modes.a.tools: is missing
    4:9: modes.a.title: expected a string, found 5
  [[clients]]⏎name = "a"⏎token = "sk-123 \${nope:x}"⏎mode = "b"⏎[[clients]]⏎name = "a"⏎token = 5⏎[[clients]]⏎name = "default"⏎token = "t"
    3:9: clients[0].token: found the unknown placeholder \${nope:…}; known placeholders: \${env:NAME}, \${file:PATH}, \${secret:NAME} and \${cmd:COMMAND}
    6:8: clients[1].name: another client is named "a", too
    7:9: clients[1].token: expected a string, found a number
    9:8: clients[2].name: expected a name that toolmux does not use itself: not "default", "anybody", or one that begins with client-, plugin- or agent-, found "default"
  ## servers of plugins
  [servers.a]⏎plugin = "p"⏎command = "x"⏎args = []⏎env.A = "x"⏎inheritEnv = []⏎cwd = "."⏎[[plugins]]⏎use = "p"
    3:1: servers.a.command: cannot be used together with plugin: a server has one of command, package, url, plugin and fleet
    4:1: servers.a.args: cannot be used together with plugin, because the plugin provides the server
    5:1: servers.a.env: cannot be used together with plugin, because the plugin provides the server
    6:1: servers.a.inheritEnv: cannot be used together with plugin, because the plugin provides the server
    7:1: servers.a.cwd: cannot be used together with plugin, because the plugin provides the server
  [servers.a]⏎plugin = ""⏎[servers.b]⏎plugin = "./x.ts"⏎[servers.c]⏎plugin = 5⏎[servers.d]⏎plugn = "p"
    2:10: servers.a.plugin: expected the name of a plugin: letters, digits, _ and -, found ""
    4:10: servers.b.plugin: expected the name of a plugin: letters, digits, _ and -, found "./x.ts"
    6:10: servers.c.plugin: expected a string, found 5
    8:1: servers.d.plugn: unknown key; did you mean "plugin"?
  ## durations and sizes
  [hub]⏎listWait = "5"
    2:12: hub.listWait: ${DURATION}, found "5"
  [hub]⏎listWait = -1
    2:12: hub.listWait: expected a duration of at most 2147483647 ms (24.8 days), found -1
  [hub]⏎listWait = nan
    2:12: hub.listWait: ${DURATION}, found NaN
  [hub]⏎listWait = inf
    2:12: hub.listWait: expected a duration of at most 2147483647 ms (24.8 days), found Infinity
  [defaults]⏎connectTimeout = 0⏎maxMessage = "lots"
    2:18: defaults.connectTimeout: expected a duration of at least 1 ms and at most 2147483647 ms (24.8 days), found 0
    3:14: defaults.maxMessage: ${SIZE}, found "lots"
  [defaults]⏎connectTimeout = true⏎maxMessage = "4GiB"⏎healthInterval = "999ms"
    2:18: defaults.connectTimeout: ${DURATION}, found a boolean
    3:14: defaults.maxMessage: expected a size between 1 and 2147483647 bytes, found "4GiB"
    4:18: defaults.healthInterval: expected 0 for never, or a duration of at least 1 s and at most 2147483647 ms (24.8 days), found "999ms"
  …⏎idleStop = "soon"⏎healthInterval = -1⏎maxMessage = 0⏎tools.timeout = { x = "1y" }
    3:12: servers.a.idleStop: ${DURATION}, found "soon"
    4:18: servers.a.healthInterval: expected 0 for never, or a duration of at least 1 s and at most 2147483647 ms (24.8 days), found -1
    5:14: servers.a.maxMessage: expected a size between 1 and 2147483647 bytes, found 0
    6:23: servers.a.tools.timeout.x: ${DURATION}, found "1y"
  ## rules over several keys
  [defaults]⏎callTimeout = "20m"
    2:15: defaults.callTimeout: callTimeout (20m) is longer than maxCallTimeout (15m); set maxCallTimeout to 20m or more
  [defaults]⏎maxCallTimeout = 500⏎reconnect = { max = "500ms" }
    2:18: defaults.maxCallTimeout: callTimeout (1m) is longer than maxCallTimeout (500ms); set maxCallTimeout to 1m or more
    3:21: defaults.reconnect.max: reconnect.base (1s) is longer than reconnect.max (500ms); set reconnect.max to 1s or more
  …⏎maxCallTimeout = "59s"
    3:18: servers.a.maxCallTimeout: callTimeout (1m) is longer than maxCallTimeout (59s); set maxCallTimeout to 1m or more
  [defaults.reconnect]⏎base = "2m"
    2:8: defaults.reconnect.base: reconnect.base (2m) is longer than reconnect.max (1m); set reconnect.max to 2m or more
  defaults.reconnect.max = "5s"⏎…⏎reconnect = { jitter = 0, base = "6s" }
    4:34: servers.a.reconnect.base: reconnect.base (6s) is longer than reconnect.max (5s); set reconnect.max to 6s or more
  [hub]⏎nameLimit = 29
    2:13: hub.nameLimit: nameLimit minus the length of clientPrefix leaves 15 characters for a name; a name needs at least 16
  [hub]⏎clientPrefix = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    2:16: hub.clientPrefix: nameLimit minus the length of clientPrefix leaves 15 characters for a name; a name needs at least 16
  ## prefixes
  [servers."my server"]⏎command = "x"⏎[servers.a__b]⏎command = "x"
    1:10: servers."my server": the name "my server" has a space, which the names of tools cannot have; add prefix = "my_server"
    3:10: servers.a__b: the name "a__b" has "__", ${SEPARATES}; add prefix = "a_b"
  [servers._a]⏎command = "x"
    1:10: servers._a: the name "_a" begins or ends with a character of "__", ${SEPARATES}; add prefix = "a"
  …⏎prefix = "a_"
    3:10: servers.a.prefix: the prefix "a_" begins or ends with a character of "__", ${SEPARATES}; write prefix = "a"
  …⏎prefix = "a.b"
    3:10: servers.a.prefix: the prefix "a.b" has ".", which the names of tools cannot have; write prefix = "a_b"
  hub.separator = "-"⏎[servers.my-fs]⏎command = "x"
    2:10: servers.my-fs: the name "my-fs" has "-", ${SEPARATES}; add prefix = "my_fs"
  …⏎[servers.b]⏎command = "x"⏎prefix = "a"
    5:10: servers.b.prefix: the servers "a" and "b" have the same prefix "a"; set another prefix for one of them: prefix = "…"
  …⏎prefix = "b"⏎[servers.b]⏎command = "x"
    4:10: servers.b: the servers "a" and "b" have the same prefix "b"; set another prefix for one of them: prefix = "…"
  ## forms of interpolation
  …⏎args = ["\${HOME}", "\${HOME:-x}", "\${secret:}", "\${cmd:}", "\${file:}", "\${}", "\${env:}"]
    3:9: servers.a.args[0]: found \${HOME}; write \${env:HOME}, or $\${HOME} for this text itself
    3:20: servers.a.args[1]: found \${HOME}; write \${env:HOME}, or $\${HOME} for this text itself
    3:34: servers.a.args[2]: found \${secret:} without a name
    3:48: servers.a.args[3]: found \${cmd:} without a command
    3:59: servers.a.args[4]: found \${file:} without a path
    3:71: servers.a.args[5]: found an unknown placeholder; known placeholders: \${env:NAME}, \${file:PATH}, \${secret:NAME} and \${cmd:COMMAND}
    3:78: servers.a.args[6]: found a \${…} without a variable name
  …⏎env.A = "\${vault:my/token}"⏎env.B = "\${input:folder}"⏎cwd = "\${env:A"
    3:9: servers.a.env.A: found the unknown placeholder \${vault:…}; known placeholders: \${env:NAME}, \${file:PATH}, \${secret:NAME} and \${cmd:COMMAND}
    4:9: servers.a.env.B: found \${input:…}, which only editors support; set an environment variable and write \${env:NAME}
    5:7: servers.a.cwd: found a \${ without a closing }
  …⏎cwd = "\${env:A:-\${env:B}}"
    3:7: servers.a.cwd: found a \${…} inside another \${…}, which is not supported
  [servers.a]⏎command = "\${x y:sk-123}"
    2:11: servers.a.command: found an unknown placeholder; known placeholders: \${env:NAME}, \${file:PATH}, \${secret:NAME} and \${cmd:COMMAND}
  ## servers over HTTP
  [servers.a]⏎url = ""⏎[servers.b]⏎url = 5⏎[servers.c]⏎serverUrl = "x"
    2:7: servers.a.url: expected a string that is not empty, found a string
    4:7: servers.b.url: expected a string, found a number
    6:1: servers.c.serverUrl: unknown key; did you mean "url"?
  [servers.a]⏎url = "https://\${file:}"⏎keyFile = "\${env:}"⏎transport = "websocket"⏎args = []⏎cwd = "."
    2:7: servers.a.url: found \${file:} without a path
    3:11: servers.a.keyFile: found a \${…} without a variable name
    4:13: servers.a.transport: expected "auto", "http" or "sse", found "websocket"
    5:1: servers.a.args: cannot be used together with url, because toolmux starts no process for a url
    6:1: servers.a.cwd: cannot be used together with url, because toolmux starts no process for a url
  [servers.a]⏎url = "u"⏎headers = { Authorization = 5, A = "\${X}" }⏎oauth = { clientid = "x", callbackPort = 0 }
    3:29: servers.a.headers.Authorization: expected a string, found a number
    3:36: servers.a.headers.A: found \${X}; write \${env:X}, or $\${X} for this text itself
    4:11: servers.a.oauth.clientid: unknown key; did you mean "clientId"?
    4:42: servers.a.oauth.callbackPort: expected the number of a port, 1 to 65535, found a number
  …⏎package = "npm:x"
    2:1: servers.a.command: cannot be used together with package: a server has one of command, package, url, plugin and fleet
  …⏎keyFile = "x"⏎headers = {}⏎runner = "npx"
    3:1: servers.a.keyFile: cannot be used together with command, because a command runs as a process
    4:1: servers.a.headers: cannot be used together with command, because a command runs as a process
    5:1: servers.a.runner: cannot be used together with command, because a command runs as a process
  ## packages
  [servers.a]⏎package = "npm:x"⏎headers = {}⏎runner = "uvx"
    3:1: servers.a.headers: cannot be used together with package, because a package runs as a process
    4:10: servers.a.runner: cannot run a package from npm; use one of npx, bunx, deno
  [servers.a]⏎package = "npm:x"⏎runner = "yarn"⏎[servers.b]⏎package = "docker:x"⏎env = { "A=b" = "c" }
    3:10: servers.a.runner: expected one of npx, bunx, deno, uvx, pipx, docker, podman, found "yarn"
    6:9: servers.b.env."A=b": is not a valid name for an environment variable of a container
  ## secrets
  [secrets]⏎sources = ["environment", "fiel", "keychain", "xyzzyx"]⏎command = true
    2:27: secrets.sources[1]: expected one of ${SOURCES}, found "fiel"; did you mean "file"?
    2:35: secrets.sources[2]: found "keychain", which is not supported any more: remove it, and set each secret again with: toolmux secret set NAME
    2:47: secrets.sources[3]: expected one of ${SOURCES}, found "xyzzyx"
    3:1: secrets.command: unknown key; did you mean "commands"?
  [secrets]⏎sources = []⏎commands = "yes"
    2:11: secrets.sources: expected at least one of ${SOURCES}, found an array
    3:12: secrets.commands: expected true or false, found "yes"
  [secrets]⏎sources = "file"
    2:11: secrets.sources: expected an array of ${SOURCES}, found "file"
  ## syntax
  [servers.a]⏎command =
    2:10: not valid TOML: command has no value
  ## beside other problems of a server, and where settings are wrong themselves
  [servers.a__b]⏎command = 5⏎[servers.c]⏎command = "x"⏎prefix = "d"⏎[servers.d]
    1:10: servers.a__b: the name "a__b" has "__", ${SEPARATES}; add prefix = "a_b"
    2:11: servers.a__b.command: expected a string, found a number
    6:10: servers.d.command: is missing
    6:10: servers.d: the servers "c" and "d" have the same prefix "d"; set another prefix for one of them: prefix = "…"
  [servers.a]⏎prefix = "_"
    1:10: servers.a.command: is missing
    2:10: servers.a.prefix: the prefix "_" begins or ends with a character of "__", ${SEPARATES}; write prefix = "server"
  [hub]⏎seperator = "-"⏎[servers.a__b]⏎command = "x"
    2:1: hub.seperator: unknown key; did you mean "separator"?
`;

const JSON_WITH_COMMENTS = `
  ## wrong content
  {⏎  "hub": {"nmae": "x", "listWait": "x"},⏎  "servers": {⏎    "a": {"comand": "x"}⏎  }⏎}
    2:11: hub.nmae: unknown key; did you mean "name"?
    2:36: hub.listWait: ${DURATION}, found "x"
    4:11: servers.a.comand: unknown key; did you mean "command"?
  {⏎  "defaults": {"reconnect": {"bse": 1, "policy": null}},⏎  "servers": {"a": {"command": "x", "reconnect": {⏎    "base": "2m"}}}⏎}
    2:30: defaults.reconnect.bse: unknown key; did you mean "base"?
  {"servers": {"a": {"command": "x", "args": ["a", null, 5]}}}
    1:50: servers.a.args[1]: expected a string, found null
    1:56: servers.a.args[2]: expected a string, found a number
  {"plugins": {"use": "x"}}
    1:13: plugins: expected an array of tables, found a table; in TOML, write [[plugins]] before each plugin
  {"plugins": [{"use": "x"},⏎  {"us": "y", "tools": null}]}
    2:3: plugins[1].use: is missing
    2:4: plugins[1].us: unknown key; did you mean "use"?
  [1, 2]
    1:1: expected a table, found an array
  {"servers": {}, "mcpServers": {}}
    1:17: mcpServers: cannot be in the same file as "servers"; move all servers into one of the two
  {"mcpServers": []}
    1:16: mcpServers: expected a table of servers, found an array
  {"mcpServers": {}, "hub": {"nmae": 1}}
    1:28: hub.nmae: unknown key; did you mean "name"?
  ## syntax
  {"a": sk-123}
    1:7: not valid JSON: this is not a value; a text needs double quotes
  {"a" 1}
    1:6: not valid JSON: a colon is missing after the key
  {"a": 1⏎ "b": 2}
    2:2: not valid JSON: a comma is missing
  {"a": [1, 2}
    1:12: not valid JSON: a comma is missing
  {"a": 1} x
    1:10: not valid JSON: this is not a value; a text needs double quotes
`;

/** As above, with `‖` between the files a.toml, b.toml and c.toml. */
const SEVERAL_FILES = `
  hub.separator = - ‖ [servers.a__b]⏎command = "x"
    a.toml:1:17: not valid TOML: a text needs quotes: hub.separator = "-"
  [servers.a]⏎command = "x" ‖ [servers.b]⏎command = "x"⏎prefix = "a"
    b.toml:3:10: servers.b.prefix: the servers "a" and "b" have the same prefix "a"; set another prefix for one of them: prefix = "…"
  ## the file that set the last of two limits is to blame
  defaults.maxCallTimeout = "2m" ‖ defaults.callTimeout = "3m" ‖ hub.name = "c"
    b.toml:1:24: defaults.callTimeout: callTimeout (3m) is longer than maxCallTimeout (2m); set maxCallTimeout to 3m or more
  defaults.reconnect = { max = "2m" } ‖ [defaults]⏎reconnect.base = "3m" ‖ defaults.reconnect.jitter = 0
    b.toml:2:18: defaults.reconnect.base: reconnect.base (3m) is longer than reconnect.max (2m); set reconnect.max to 3m or more
`;

/** `…` stands for the first lines of a server that is right so far. */
function fill(rows: readonly Row[], name = ""): readonly Row[] {
  return rows.map(([text, ...problems]) => [
    text.replaceAll("…\n", '[servers.a]\ncommand = "x"\n'),
    ...problems.map((problem) => name + problem),
  ]);
}

const TWICE = `{"servers": {"a": {"command": "x"},\r\n\t"a": {"command": "y"}}}`;

describe("a wrong manifest", () => {
  const table: readonly Row[] = [
    ...fill(parseRows(TOML), "t.toml:"),
    ...fill(parseRows(JSON_WITH_COMMENTS), "t.json:"),
    ["", "t.json:1:1: not valid JSON: a value is missing"],
    [TWICE, "t.json:2:2: servers.a: is set twice; remove one of the two"],
    ["[".repeat(200_000), "t.json: nested too deeply"],
  ];
  for (const [text, ...expected] of table) {
    const [name = ""] = expected[0]?.split(":") ?? [];
    const title = JSON.stringify(text.length > 70 ? `${text.slice(0, 70)}…` : text);
    it(`in ${name} is told by place, key and remedy: ${title}`, async () => {
      assert.deepEqual(await findProblems(text, name), expected);
    });
  }

  it("has all its problems told at once, over files and the variable, each file in its order", () =>
    withManifestFolder(async (folder) => {
      const text = `[hub]\nnmae = 1\n[servers.x]\ncommand = "c"\nargs = ["\${X}", 2]`;
      const a = await folder.write("a.toml", text);
      const b = await folder.write("b.json", `{"servers": {`);
      const env = { TOOLMUX_SERVERS: `{"y": {"command": 5},\n "z": {"cmd": "secret"}}` };
      assert.deepEqual(await folder.loadProblems({ files: [a, b, `${folder.root}/c.toml`], env }), [
        "c.toml: does not exist",
        "b.json:1:14: not valid JSON: a closing } is missing",
        `a.toml:2:1: hub.nmae: unknown key; did you mean "name"?`,
        "a.toml:5:9: servers.x.args[0]: found ${X}; write ${env:X}, or $${X} for this text itself",
        "a.toml:5:17: servers.x.args[1]: expected a string, found a number",
        "TOOLMUX_SERVERS:1:19: y.command: expected a string, found a number",
        `TOOLMUX_SERVERS:2:8: z.cmd: unknown key; did you mean "command"?`,
      ]);
    }));

  for (const [text, ...expected] of fill(parseRows(SEVERAL_FILES))) {
    it(`over several files is told by the file, key and remedy: ${JSON.stringify(text)}`, () =>
      withManifestFolder(async (folder) => {
        const texts = text.split(" ‖ ");
        const writes = texts.map((each, index) => folder.write(`${"abc"[index]}.toml`, each));
        const files = await Promise.all(writes);
        assert.deepEqual(await folder.loadProblems({ files }), expected);
      }));
  }

  it("says why a file cannot be read", () =>
    withManifestFolder(async (folder) => {
      await folder.write("dir/x", "");
      const binary = await folder.write("binary.toml", new Uint8Array([0x61, 0xff, 0xfe]));
      const files = [`${folder.root}/none.toml`, `${folder.root}/dir`, binary, "/dev/null"];
      assert.deepEqual(await folder.loadProblems({ files }), [
        "none.toml: does not exist",
        "dir: is a folder, not a file",
        "/dev/null: is not a regular file",
        "binary.toml: is not UTF-8 text",
      ]);
    }));

  it("becomes one error with a line per problem for whoever cannot go on", () => {
    const position = { line: 1, column: 2 };
    const problem = { file: "/a.toml", position, path: ["hub", "x"], message: "unknown key" };
    const other = fileProblem("/b.toml", "does not exist");
    const error = manifestError([{ ...problem, at: "key" }, other]);
    assert.ok(error instanceof HubError);
    assert.equal(error.code, "manifestInvalid");
    assert.equal(error.message, "/a.toml:1:2: hub.x: unknown key\n/b.toml: does not exist");
    assert.equal(error.properties.exit, 2);
  });
});

it("the nearest of the known keys is found, if one is near enough", () => {
  const known = ["command", "args", "env", "inheritEnv", "cwd", "enabled", "prefix", "tools"];
  const keys = "comand cmd commnad ARGS arg agrs inherit_env enable pwd tool x isolation".split(
    " ",
  );
  const wanted = "command cwd command args args args inheritEnv enabled cwd tools none none";
  const found = keys.map((key) => findNearest(key, known) ?? "none");
  assert.deepEqual(found, wanted.split(" "));
  for (const key of ["", "a".repeat(10_000)]) assert.equal(findNearest(key, known), undefined);
});

describe("a problem within the table of one server", () => {
  /** Whether each server can be run, in order; undefined if the manifest is refused as a whole. */
  const outcome = (text: string, name = "t.toml", env = {}): Promise<unknown> =>
    withManifestFolder(async (folder) => {
      const loaded = await folder.load({ files: [await folder.write(name, text)], env });
      if (!loaded.ok) return undefined;
      return loaded.manifest.servers.map((spec) => [spec.name, spec.kind]);
    });
  const GOOD = '[servers.good]\ncommand = "x"\n';
  const COSTS = [
    ["good", "stdio"],
    ["bad", "invalid"],
  ];

  for (const [what, table] of Object.entries({
    "an unknown key": 'command = "x"\ncomand = "y"',
    "nothing to start": "args = []",
    "a value of a wrong type": 'command = "x"\nargs = 5',
    "limits in a wrong order": 'command = "x"\nmaxCallTimeout = 1',
    "the prefix of another": 'command = "x"\nprefix = "good"',
    "a prefix that is none": 'command = "x"\nprefix = "_"',
    "a form that there is not": 'command = "x"\nargs = ["${HOME}"]',
    "a plugin where there is none": 'plugin = "nobody"',
  })) {
    it(`costs that server alone: ${what}`, async () => {
      assert.deepEqual(await outcome(`${GOOD}[servers.bad]\n${table}`), COSTS);
    });
  }

  it("costs that server alone in JSON, in TOOLMUX_SERVERS, and where the entry is no table", async () => {
    const servers = { good: { command: "x" }, bad: { comand: "x" } };
    assert.deepEqual(await outcome(JSON.stringify({ servers }), "t.json"), COSTS);
    const env = { TOOLMUX_SERVERS: JSON.stringify({ bad: { comand: "x" } }) };
    assert.deepEqual(await outcome(GOOD, "t.toml", env), COSTS);
    const odd = { servers: { good: { command: "x" }, bad: "x" } };
    assert.deepEqual(await outcome(JSON.stringify(odd), "t.json"), COSTS);
  });

  it("takes no prefix from a server that is right, wherever that stands", async () => {
    const text = `[servers.bad]\ncommand = 5\nprefix = "good"\n${GOOD}`;
    assert.deepEqual(await outcome(text), COSTS.toReversed());
  });

  it("is told but costs nothing in a table that a later file replaces", () =>
    withManifestFolder(async (folder) => {
      const a = await folder.write("a.toml", "[servers.a]\ncomand = 'x'");
      const b = await folder.write("b.toml", "[servers.a]\ncommand = 'x'");
      const loaded = await folder.load({ files: [a, b] });
      assert.ok(loaded.ok && loaded.problems.length > 0);
      const kinds = loaded.manifest.servers.map(({ kind }) => kind);
      assert.deepEqual(kinds, ["stdio"]);
    }));

  for (const [what, text] of Object.entries({
    "its syntax": `${GOOD}[servers.bad`,
    "[hub]": `[hub]\nnme = "x"\n${GOOD}`,
    "[defaults]": `[defaults]\ncallTimeout = 0\n${GOOD}`,
    "limits of the defaults in a wrong order": `[defaults]\ncallTimeout = 5\nmaxCallTimeout = 1\n${GOOD}`,
    plugins: `${GOOD}[[plugins]]\nuses = "x"`,
    "a key at the top": `${GOOD}\n[server.bad]\ncommand = "x"`,
  })) {
    it(`is another thing than one of the file, which is refused as a whole: ${what}`, async () => {
      assert.equal(await outcome(text), undefined);
    });
  }

  it("leaves a prefix to the server that has it in force, whatever the order", () =>
    withManifestFolder(async (folder) => {
      const [a, b] = ["a", "b"].map((name) => `[servers.${name}]\ncommand = "x"\nprefix = "p"\n`);
      const file = await folder.write("t.toml", `${a}${b}`);
      const kinds = async (inForce: ReadonlyMap<string, string>) => {
        const place = { env: { HOME: folder.home }, cwd: folder.cwd, platform: "linux" };
        const rest = { ...place, runningPrefixes: () => inForce };
        const loaded = await loadManifest({ files: [file], ...rest });
        assert.ok(loaded.ok);
        return loaded.manifest.servers.map(({ kind }) => kind);
      };
      assert.deepEqual(await kinds(new Map()), ["stdio", "invalid"]);
      assert.deepEqual(await kinds(new Map([["b", "p"]])), ["invalid", "stdio"]);
    }));
});
