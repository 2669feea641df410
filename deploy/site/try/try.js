// The page "Try it". What is typed goes to the program in this page and nowhere else: the page's
// policy (CSP) allows no other server, and a fragment of a URL is never sent.
'use strict'
const element = id => document.getElementById(id)

function show() {
  const answer = expressionsOf(element('text').value)
  const shown = answer.public ? answer.expressions : []
  element('verdict').textContent = answer.error ? `This is no name and no URL: ${answer.error}`
    : !answer.public ? `Nothing leaves, ever: ${answer.host} cannot be public. It is neither looked up in Safe Browsing's lists nor sent.`
      : 'Nothing leaves unless a list here holds one of the marked prefixes, which is so for about one name in 250. Then these 4 bytes are sent, and nothing else of the name.'
  element('expressions').replaceChildren(...shown.map(x => {
    const row = document.createElement('tr')
    const mark = document.createElement('mark')
    mark.textContent = x.sum.slice(0, 8)
    const sum = document.createElement('code')
    sum.append(mark, x.sum.slice(8))
    for (const content of [x.text, sum, x.dns ? 'the plugin' : 'browsers only: DNS sees no path']) row.insertCell().append(content)
    return row
  }))
  document.querySelector('main table').hidden = shown.length === 0
}

addEventListener('lookup', () => {
  const asked = decodeURIComponent(location.hash.slice(1))
  if (asked) element('text').value = asked
  document.querySelector('form button').disabled = false
  show()
})
element('question').addEventListener('submit', event => {
  event.preventDefault()
  show()
})

const go = new Go()
fetch('try.wasm').then(answer => answer.arrayBuffer()).then(program => WebAssembly.instantiate(program, go.importObject))
  .then(program => go.run(program.instance))
  .catch(error => { element('verdict').textContent = `The program cannot be loaded: ${error}` })
