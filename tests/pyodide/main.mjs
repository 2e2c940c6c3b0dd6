// Tells the stories in real Pyodide, with JupyterLite's own Python kernel.
// node main.mjs <environment: node_modules/pyodide and site/> <repository> <file for the report>
import { createRequire } from "node:module";
import { dirname, basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [environment, repository, report] = process.argv.slice(2).map((path) => resolve(path));
const entry = createRequire(join(environment, "package.json")).resolve("pyodide/pyodide.mjs");
const { loadPyodide } = await import(pathToFileURL(entry));
const python = await loadPyodide();
for (const [path, root] of Object.entries({ "/site": join(environment, "site"), "/repository": repository, "/report": dirname(report) })) {
  python.FS.mkdirTree(path);
  python.FS.mount(python.FS.filesystems.NODEFS, { root }, path);
}
// Into a file: the kernel takes the output for itself.
await python.runPythonAsync(`
import json, sys
from pathlib import Path
sys.path[:0] = ["/site", "/repository"]
import pyodide_kernel
from tests.pyodide.host import Host
from tests.pyodide.stories import tell
shell = pyodide_kernel.ipython_shell
found = await tell(lambda: Host(shell, shell.kernel.comm_manager))
Path("/report/${basename(report)}").write_text(json.dumps({"python": sys.version, "platform": sys.platform, "stories": found}))
`);
