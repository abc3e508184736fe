// Starts `ks lsp` for KernelScript files and stops it with the editor.

const vscode = require('vscode');
const { LanguageClient, TransportKind } = require('vscode-languageclient/node');

let client;

async function start() {
  const command = vscode.workspace.getConfiguration('kernelscript').get('command', 'ks');
  const server = { command, args: ['lsp'], transport: TransportKind.stdio };
  const options = {
    documentSelector: [{ language: 'kernelscript' }],
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher('**/*.{ks,kh}') },
  };
  client = new LanguageClient('kernelscript', 'KernelScript', server, options);
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    vscode.window.showErrorMessage(`KernelScript: \`${command} lsp\` does not start: ${error.message}`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function activate(context) {
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(vscode.commands.registerCommand('kernelscript.restart', restart));
  await start();
}

module.exports = { activate, deactivate: stop };
