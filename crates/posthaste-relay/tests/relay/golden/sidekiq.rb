# What Sidekiq's client pushes: sidekiq.rb CASE; without one it lists the cases.
# With SIDEKIQ8 it runs the client of that checkout, whose Redis library Debian does not have, through the redis gem.
require "json"

JID = "b4a577edbccf1d805744efa9"
CASES = {
  "immediate" => {"class" => "MailJob", "args" => [1, "two", 3.5, nil, true, {"a" => [{}], "b" => ""}], "queue" => "mail", "jid" => JID},
  "empty" => {"class" => "MailJob", "args" => [], "jid" => JID},
  "unicode" => {"class" => "Mail::Job", "args" => ["ü 日本 🚀", "<a href='x'>&\"\\/</a>", "\u2028\u2029\u0001\n\t\u007f"], "queue" => "mail", "jid" => JID},
  "big integers" => {"class" => "MailJob", "args" => [9007199254740993, -9223372036854775808, 18446744073709551616, 1.0e300, 1.0, 1.0e-7], "queue" => "mail", "jid" => JID},
  "scheduled" => {"class" => "MailJob", "args" => [1], "queue" => "mail", "jid" => JID, "at" => 4102444800.5},
  "scheduled at a whole second" => {"class" => "MailJob", "args" => [1], "queue" => "mail", "jid" => JID, "at" => 4102444800},
  "options" => {"class" => "MailJob", "args" => [1], "queue" => "mail", "jid" => JID, "retry" => 5, "backtrace" => true, "tags" => ["a", "b"], "traceparent" => "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
  "no retries" => {"class" => "MailJob", "args" => [1], "queue" => "mail", "jid" => JID, "retry" => false}
}

if ARGV.empty?
  puts JSON.generate(CASES)
  exit
end

# The clock stands.
Process.singleton_class.prepend(Module.new do
  def clock_gettime(id, unit = :float_second)
    return super unless id == Process::CLOCK_REALTIME
    unit == :millisecond ? 1700000000125 : 1700000000.125
  end
end)
def Time.now(*) = Time.at(1700000000.125)

if ENV["SIDEKIQ8"]
  require "redis"
  $LOAD_PATH.unshift "#{ENV["SIDEKIQ8"]}/lib"
  module Sidekiq
    def self.dump_json(object) = JSON.generate(object)
    def self.default_job_options = {"retry" => true, "queue" => "default"}
    class Config; DEFAULTS = {on_complex_arguments: :raise}; end
  end
  require "sidekiq/version"
  require "sidekiq/client"
  class Pool
    def initialize = @redis = Redis.new(url: ENV["REDIS_URL"])
    def with = yield(self)
    def pipelined = yield(self)
    %w[sadd lpush zadd].each { |name| define_method(name) { |*words| @redis.call(name, *words.flatten) } }
  end
  client = Sidekiq::Client.allocate
  client.instance_variable_set(:@redis_pool, Pool.new)
  client.instance_variable_set(:@chain, Sidekiq::Middleware::Chain.new(nil))
else
  require "sidekiq"
  client = Sidekiq::Client.new
end
client.push(CASES.fetch(ARGV[0]))
warn "sidekiq #{Sidekiq::VERSION}"
