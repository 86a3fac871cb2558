# Runs jobs of any class, and writes one line for each: sidekiq --require worker.rb
require "json"
require "sidekiq"

class AnyJob
  include Sidekiq::Worker
  def perform(*) = nil
end

# One that must not run twice, and raises.
class ChargeJob
  include Sidekiq::Worker
  sidekiq_options retry: false
  def perform(*) = raise("declined")
end

# Where Sidekiq looks for the class of a job; the job itself stays as it was sent.
Sidekiq::Processor.prepend(Module.new do
  private

  def constantize(name) = name == "ChargeJob" ? ChargeJob : AnyJob
end)

class WritesEffects
  def initialize = @file = File.open(ENV.fetch("POSTHASTE_EFFECTS"), "a")

  def call(_worker, job, queue)
    line = JSON.generate(id: job["jid"], name: job["class"], args: job["args"], queue: queue, job: job)
    @file.syswrite("#{line}\n")
    @file.fsync
    yield
  end
end

Sidekiq.configure_server do |config|
  config.server_middleware { |chain| chain.add WritesEffects }
  # Scheduled jobs are looked for at once, and not after seconds.
  options = config.respond_to?(:[]=) ? config : Sidekiq.options
  options[:average_scheduled_poll_interval] = 1
  # Without this the first look comes ten seconds later.
  options[:poll_interval_average] = 1
end
