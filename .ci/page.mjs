// Called by .ci/page with the URLs of status pages. The first has the name LONG.
import axe from 'axe-core'
import pa11y from 'pa11y'
import puppeteer from 'puppeteer-core'

const chromium = { executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] }
const browser = await puppeteer.launch(chromium)
const urls = process.argv.slice(2)
let bad = 0, looks = 0
const complain = text => { bad++; console.log(text) }
for (const url of urls) {
  for (const host of ['', '?host=https://bank-login.example/', '?host=x%20y']) {
    for (const scheme of ['light', 'dark']) {
      for (const width of [1280, 390]) {
        const where = `${url}${host} ${scheme} ${width}`
        const page = await browser.newPage()
        page.on('console', m => complain(`${where}: the console says: ${m.text()}`))
        page.on('request', r => { if (!r.url().startsWith(url)) complain(`${where}: the page loads ${r.url()}`) })
        await page.setViewport({ width, height: 1000 })
        await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }])
        await page.goto(url + host)
        const { names, wide } = await page.evaluate(() => ({
          names: document.body.innerText,
          wide: [document.documentElement, ...document.querySelectorAll('table, .scroll')]
            .filter(e => e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > innerWidth)
            .map(e => `${e.ariaLabel || e.tagName}: ${e.scrollWidth} pixels in ${e.clientWidth}`),
        }))
        for (const w of wide) complain(`${where}: ${w}`)
        if (url === urls[0] && !names.includes(process.env.LONG)) complain(`${where}: the page has no ${process.env.LONG}`)
        await page.evaluate(axe.source)
        const found = await page.evaluate(() => window.axe.run({ resultTypes: ['violations'] }))
        for (const v of found.violations) complain(`${where}: ${v.id}: ${v.help}: ${v.nodes.map(n => n.html).join(' ')}`)
        await page.close()
        looks++
      }
    }
    for (const i of (await pa11y(url + host, { chromeLaunchConfig: chromium })).issues) complain(`${url}${host}: ${i.code}: ${i.message} ${i.context}`)
  }
}
await browser.close()
if (bad > 0) process.exit(1)
console.log(`axe finds nothing in ${looks} pages, pa11y in ${urls.length * 3}`)
