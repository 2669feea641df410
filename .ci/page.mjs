// Called by .ci/page with the folder of the web site, the program safebrowsing, and the URLs of status pages. A name of 120
// characters is on the first, and must not hide what is beside it on a phone. The page "Try it" must say the same as the program,
// load nothing but its files, and send nothing that is typed.
import pa11y from 'pa11y'
import puppeteer from 'puppeteer-core'
import { execFileSync } from 'node:child_process'

const [site, program, ...urls] = process.argv.slice(2)
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] })
const bad = []
let looks = 0
// look opens a page, calls then(page), and complains of what axe and pa11y find, and of requests but those allowed.
const look = async (url, scheme, width, allowed, then) => {
  const page = await browser.newPage()
  const complain = text => bad.push(`${url} ${scheme} ${width}: ${text}`)
  page.on('console', m => { if (!m.location().url?.endsWith('/favicon.ico')) complain(`the console says: ${m.text()}`) })
  page.on('pageerror', e => complain(`the page fails: ${e}`))
  page.on('request', r => { if (!r.url().startsWith(allowed)) complain(`the page loads ${r.url()}`) })
  await page.setViewport({ width, height: 1000 })
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }])
  await page.goto(url)
  await then(page, complain)
  const { issues } = await pa11y(url, { browser, page, ignoreUrl: true, runners: ['axe', 'htmlcs'] })
  for (const i of issues) complain(`${i.code}: ${i.message} ${i.context}`)
  await page.close()
  looks++
}

const hosts = ['', '?host=https://bank-login.example/', '?host=x%20y']
for (const url of urls) for (const host of hosts) for (const scheme of ['light', 'dark']) for (const width of [1280, 390]) {
  await look(url + host, scheme, width, url, async (page, complain) => {
    const { names, wide } = await page.evaluate(() => ({
      names: document.body.innerText,
      wide: [document.documentElement, ...document.querySelectorAll('table, .scroll')]
        .filter(e => e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > innerWidth)
        .map(e => `${e.ariaLabel || e.tagName}: ${e.scrollWidth} pixels in ${e.clientWidth}`),
    }))
    wide.forEach(complain)
    if (url === urls[0] && !names.includes(process.env.LONG)) complain(`the page has no ${process.env.LONG}`)
  })
}

const texts = ['from.the.fragment.example', 'www.example.com', 'a.b.c.d.example.co.uk', 'münchen.example',
  'https://user@login.phishing.example:8443/a/b/c/d/e.html?x=1#y', 'http://3279880203/blah']
await look(`${site}/try.html#${texts[0]}`, 'light', 1280, site, async (page, complain) => {
  await page.waitForSelector('#expressions tr')
  page.on('request', r => complain(`the page asks for ${r.url()} after it was loaded`))
  const shown = () => page.$$eval('#expressions tr', rows => rows.map(r => [...r.cells].slice(0, 2).map(c => c.textContent)))
  const type = async text => {
    await page.$eval('#text', (e, text) => { e.value = text }, text)
    await page.click('button')
  }
  for (const text of texts) {
    if (text !== texts[0]) await type(text)
    const want = JSON.parse(execFileSync(program, ['expressions', '-json', text])).expressions.map(x => [x.expression, x.sha256])
    const got = await shown()
    if (want.length === 0 || JSON.stringify(got) !== JSON.stringify(want))
      complain(`${text}: the page says ${JSON.stringify(got)}, the program ${JSON.stringify(want)}`)
  }
  for (const [text, part] of [['nas.local', 'Nothing leaves, ever'], ['192.168.1.1', 'Nothing leaves, ever'], ['http://[::1', 'no name and no URL']]) {
    await type(text)
    const says = await page.$eval('#verdict', e => e.textContent)
    if (!says.includes(part) || (await shown()).length > 0) complain(`${text}: the page says ${says}`)
  }
})
// Its policy lets no other request leave.
const page = await browser.newPage()
await page.goto(`${site}/try.html`)
if (await page.evaluate(() => fetch('https://example.com/').then(() => true, () => false))) bad.push('the policy of the page lets a request leave')
await browser.close()
if (bad.length > 0) throw new Error(bad.join('\n'))
console.log(`axe and pa11y find nothing in ${looks} pages, and "Try it" says what the program says of ${texts.length} names and URLs`)
