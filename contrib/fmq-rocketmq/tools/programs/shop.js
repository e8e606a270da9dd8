// The same order service with RocketMQ's own Node client: node shop.js HOST:PORT FOLDER NAME sell|answer
const fs = require('fs');
const path = require('path');
const { Producer } = require('rocketmq-client-nodejs');

const [where, folder, name, mode] = process.argv.slice(2);
const TOPIC = 'orders', COMMIT = 1, ROLLBACK = 2, UNKNOWN = 0;
const say = word => fs.writeSync(1, word + '\n');
const file = (order, kind) => path.join(folder, order.slice(0, order.lastIndexOf('-')) + kind);

function outcome(order) {
  const orders = file(order, '.orders');
  const rows = fs.existsSync(orders) ? fs.readFileSync(orders, 'utf8').split('\n') : [];
  const row = rows.find(each => each.startsWith(order + ' '));
  return row ? row.split(' ')[1] : '';
}

const checker = {
  async check(message) {
    const order = message.body.toString();
    // Look first whether its process has ended: after that no row can come.
    const isGone = fs.existsSync(file(order, '.gone'));
    const said = outcome(order);
    say('asked');
    if (said === 'paid') return COMMIT;
    return said || isGone ? ROLLBACK : UNKNOWN;
  },
};

(async () => {
  const producer = new Producer({ endpoints: where, namespace: '', topics: [TOPIC], maxAttempts: 2, checker });
  await producer.startup();
  say('ready');
  if (mode === 'answer') return;
  const database = fs.openSync(path.join(folder, name + '.orders'), 'a');
  for (let count = 0; ; count++) {
    const order = `${name}-${count}`;
    const tx = producer.beginTransaction();
    await producer.send({ topic: TOPIC, body: Buffer.from(order) }, tx);
    const isPaid = Math.random() < 0.8;
    fs.writeSync(database, `${order} ${isPaid ? 'paid' : 'refused'}\n`);
    fs.fsyncSync(database);
    if (Math.random() < 0.9) await (isPaid ? tx.commit() : tx.rollback()); // one in ten is left to the checker
    say('order');
  }
})().catch(e => { console.error(e); process.exit(1); });
